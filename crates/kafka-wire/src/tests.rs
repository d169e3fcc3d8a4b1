//! The codec against an independent one, against transcripts written by hand, and against garbage.

mod differential;
mod text_and_ids;
mod totality;
mod transcripts;
