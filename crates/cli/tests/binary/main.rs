//! The real binary, run as a person or a script runs it: in directories of its own, on free ports.

mod cluster;
mod config;
mod docs;
mod growing;
mod queues;
mod sdk;
mod serve;
mod support;
mod users;
mod verbs;
