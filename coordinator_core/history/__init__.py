"""What happened to groups and their committed offsets, told from the log alone: when, by whom, by which rule."""
