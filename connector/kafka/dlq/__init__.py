"""Records that cannot be applied -> the dead letter queue, and back."""
