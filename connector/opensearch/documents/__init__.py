"""rows -> document ids and JSON; ids -> stored documents."""
