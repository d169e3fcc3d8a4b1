//! Names, ids, record batches, commands and their outcomes. No I/O; depends on nothing else of the project.
