//! Names and passwords: which ones a verb sends, and how a person hands over a new one.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::exit::Failure;

/// Longest password that is read, in bytes; the server takes no longer ones.
const PASSWORD_BYTES_MAX: u64 = 4_096;

/// The variable that a verb takes its own user's password from. There is no flag for it: what stands on a command line
/// is read by everybody on the machine.
const PASSWORD_VARIABLE: &str = "WEIR_PASSWORD";

/// A user's name and password.
#[derive(Clone)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// As whom a verb asks.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CredentialArgs {
    /// Authenticate as this user [default: the context's, or nobody]. The password is that in WEIR_PASSWORD, or in the
    /// context's file, or is asked for.
    #[arg(long, env = "WEIR_USER", value_name = "NAME")]
    user: Option<String>,
}

impl CredentialArgs {
    /// The flag's or variable's user, or else the context's, with the password; none if there is no user.
    pub fn resolve(
        &self,
        context_user: Option<String>,
        context_file: Option<&Path>,
    ) -> Result<Option<Credentials>, Failure> {
        let of_context = self.user.is_none() || self.user == context_user;
        let Some(user) = self.user.clone().or(context_user) else { return Ok(None) };
        let password = match (std::env::var(PASSWORD_VARIABLE), context_file) {
            (Ok(password), _) => password,
            (Err(std::env::VarError::NotUnicode(_)), _) => {
                return Err(Failure::Usage(format!("the variable {PASSWORD_VARIABLE} is not UTF-8")));
            }
            (Err(_), Some(file)) if of_context => from_file(file)?,
            (Err(_), _) if io::stdin().is_terminal() => ask(&format!("password of {user}: "))?,
            (Err(_), _) => {
                return Err(Failure::Usage(format!(
                    "there is no password for user {user}; put it into the variable {PASSWORD_VARIABLE}, or save a file \
                     that has it with `weir context set NAME --password-file FILE`"
                )));
            }
        };
        Ok(Some(Credentials { user, password }))
    }
}

impl std::fmt::Debug for Credentials {
    /// Leaves out the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Where a new password comes from.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NewPasswordArgs {
    /// A file whose first line is the password; - is standard input [default: it is asked for, or read from standard
    /// input].
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl NewPasswordArgs {
    /// The new password: from the file, from whoever sits at the terminal, or from standard input.
    pub fn read(&self, user: &str) -> Result<String, Failure> {
        match &self.password_file {
            Some(file) if file.as_os_str() != "-" => from_file(file),
            None if io::stdin().is_terminal() => {
                let password = ask(&format!("new password of {user}: "))?;
                match ask("the same again: ")? == password {
                    true => Ok(password),
                    false => Err(Failure::Usage("the two are not the same; nothing was changed".into())),
                }
            }
            _ => first_line(io::stdin().lock(), "standard input"),
        }
    }
}

fn from_file(path: &Path) -> Result<String, Failure> {
    let shown = path.display().to_string();
    let file = fs::File::open(path)
        .map_err(|error| Failure::Usage(format!("the password file {shown} cannot be read: {error}")))?;
    warn_if_readable(&file, &shown);
    first_line(io::BufReader::new(file), &shown)
}

/// A password that everybody may read is none.
fn warn_if_readable(file: &fs::File, shown: &str) {
    use std::os::unix::fs::PermissionsExt;
    let readable = file
        .metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o044 != 0);
    if readable {
        // If standard error is gone there is nobody left to warn.
        let _ = writeln!(
            io::stderr(),
            "weir: warning: the password file {shown} can be read by other users; `chmod 600 {shown}` mends that"
        );
    }
}

fn first_line(from: impl BufRead, shown: &str) -> Result<String, Failure> {
    let mut line = String::new();
    from.take(PASSWORD_BYTES_MAX + 2)
        .read_line(&mut line)
        .map_err(|error| Failure::Usage(format!("no password can be read from {shown}: {error}")))?;
    let password = line.trim_end_matches(['\r', '\n']);
    match password.is_empty() {
        true => Err(Failure::Usage(format!("there is no password in {shown}; its first line should be one"))),
        false => Ok(password.to_owned()),
    }
}

/// Asks at the terminal, which does not show what is typed.
fn ask(question: &str) -> Result<String, Failure> {
    let stdin = io::stdin();
    let cannot =
        |error: &dyn std::fmt::Display| Failure::Failed(format!("no password can be asked for: {error}"));
    let before = tcgetattr(&stdin).map_err(|error| cannot(&error))?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    write!(io::stderr(), "{question}").and_then(|()| io::stderr().flush()).map_err(|error| cannot(&error))?;
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(|error| cannot(&error))?;
    let answer = first_line(stdin.lock(), "the terminal");
    let restored = tcsetattr(&stdin, OptionalActions::Flush, &before);
    // The line's own end was not shown either.
    let _ = writeln!(io::stderr());
    restored.map_err(|error| cannot(&error))?;
    answer
}
