//! The front against a whole broker, over real sockets. Tests whose name begins with `trap_` each stand
//! for something that has broken clients of other brokers.

#[path = "../common/mod.rs"]
mod common;

mod access;
mod admin;
mod fetching;
mod groups;
mod nodes;
mod protocol;
mod records;
