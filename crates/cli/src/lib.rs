//! The `weir` command: `serve`, and every verb an operator needs.
//!
//! * `args`: the command line.
//! * [`config`]: flags over environment over file over defaults.
//! * `serve`: the server.
//! * `config_verbs`, `admin`, `records`, `log_files`, `contexts`: the verbs.
//! * `output`, `time`: tables for people, JSON for programs, times for both.
//! * `exit`: what a run ends with.

mod admin;
mod args;
pub mod config;
mod config_verbs;
mod contexts;
mod credentials;
mod exit;
mod log_files;
mod output;
mod records;
mod serve;
mod time;

pub use args::run;
