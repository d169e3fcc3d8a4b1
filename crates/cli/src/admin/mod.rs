//! The verbs that speak to a server's admin API.
//!
//! * [`server`]: requests and answers.
//! * [`topics`], [`queues`], [`groups`], [`users`], [`nodes`], [`logs`]: the nouns.

pub mod groups;
pub mod logs;
pub mod nodes;
pub mod queues;
mod server;
pub mod topics;
pub mod users;

use std::io::{BufRead, IsTerminal, Write};

use crate::exit::Failure;

/// Asks before something is destroyed. Where nobody can be asked, the flag has to say it.
fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::Usage(format!(
            "{question} Nobody can be asked here; add --yes if that is meant"
        )));
    }
    let mut answer = String::new();
    write!(std::io::stderr(), "{question} [y/N] ")
        .and_then(|()| std::io::stderr().flush())
        .and_then(|()| stdin.lock().read_line(&mut answer))
        .map_err(|error| Failure::Failed(format!("there is no answer: {error}")))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing was changed".into())),
    }
}

/// Reads `NAME=VALUE`.
pub fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}
