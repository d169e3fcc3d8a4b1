//! The `weir` command: `serve`, and every verb an operator needs.
//!
//! * [`args`]: the command line.
//! * [`config`]: flags over environment over file over defaults.
//! * [`exit`]: what a run ends with.
//! * [`output`]: tables for people, JSON for programs.

mod args;
pub mod config;
mod config_verbs;
mod exit;
mod output;

pub use args::run;
