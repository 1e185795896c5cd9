"""Files that earlier versions described wrongly -> the same files, described as they are."""
