"""options -> the generated reference and the sample files."""
