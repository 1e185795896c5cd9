"""what only an index or a table of deletes knows -> changes that are newer, documents that move. After the job."""
