//! `weir user`.

use serde_json::{Value, json};

use super::confirm;
use super::server::{Server, segment};
use super::topics::Common;
use crate::credentials::NewPasswordArgs;
use crate::exit::Failure;
use crate::output::{self, Format, Table, cell};

#[derive(Debug, clap::Subcommand)]
pub enum UserCommand {
    /// Create a user. From the first one on every client has to say who it is.
    #[command(after_help = "Examples:\n  weir user create ops --tag administrator\n  \
        weir user create shop --password-file shop.password && weir user grant shop --all")]
    Create {
        /// Its name.
        name: String,
        /// A role: administrator, monitoring, policymaker, management or impersonator; may be repeated.
        #[arg(long, value_name = "TAG")]
        tag: Vec<String>,
        #[command(flatten)]
        password: NewPasswordArgs,
        #[command(flatten)]
        common: Common,
    },
    /// List the users and what they may do.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Give a user a new password.
    Password {
        /// Its name.
        name: String,
        #[command(flatten)]
        password: NewPasswordArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Delete users with everything that they may do.
    Delete {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Let a user do things with the topics, queues, exchanges and groups of these names, and with no others.
    #[command(
        after_help = "Each is a regular expression that is searched for in a name, as in RabbitMQ; the empty one is \
        for nothing.\n\nExamples:\n  weir user grant ops --all\n  \
        weir user grant shop --write '^orders$' --read '^(orders|prices)$'"
    )]
    Grant {
        /// Its name.
        name: String,
        /// Where [default: the default namespace].
        #[arg(long, value_name = "NAME", default_value = "/")]
        namespace: String,
        /// What it may create, change and delete.
        #[arg(long, value_name = "PATTERN", default_value = "")]
        configure: String,
        /// What it may send to.
        #[arg(long, value_name = "PATTERN", default_value = "")]
        write: String,
        /// What it may read from.
        #[arg(long, value_name = "PATTERN", default_value = "")]
        read: String,
        /// Everything.
        #[arg(long, conflicts_with_all = ["configure", "write", "read"])]
        all: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Take back everything that a user may do in a namespace.
    Revoke {
        /// Its name.
        name: String,
        /// Where [default: the default namespace].
        #[arg(long, value_name = "NAME", default_value = "/")]
        namespace: String,
        #[command(flatten)]
        common: Common,
    },
}

impl UserCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            UserCommand::Create { name, tag, password, common } => {
                let password = password.read(&name)?;
                let body = json!({ "name": name, "password": password, "tags": tag });
                let answer = Server::new(&common.server)?.post("/users", &body)?;
                let hint = format!(
                    "created user {name}\nit may do nothing yet; `weir user grant {name} --all` lets it do everything\n"
                );
                done(&common, &answer, &hint)
            }
            UserCommand::List { common } => {
                let users = Server::new(&common.server)?.get("/users")?;
                output::print(common.output.output, &users, table)
            }
            UserCommand::Password { name, password, common } => {
                let body = json!({ "password": password.read(&name)? });
                let answer = Server::new(&common.server)?.patch(&path(&name), &body)?;
                done(&common, &answer, &format!("changed the password of user {name}\n"))
            }
            UserCommand::Delete { names, yes, common } => {
                confirm(&format!("Delete user(s) {}?", names.join(", ")), yes)?;
                let server = Server::new(&common.server)?;
                for name in names {
                    let answer = server.delete(&path(&name))?;
                    done(&common, &answer, &format!("deleted user {name}\n"))?;
                }
                Ok(())
            }
            UserCommand::Grant { name, namespace, configure, write, read, all, common } => {
                let [configure, write, read] =
                    if all { [".*"; 3].map(str::to_owned) } else { [configure, write, read] };
                if [&configure, &write, &read].iter().all(|pattern| pattern.is_empty()) {
                    return Err(Failure::Usage(
                        "give --configure, --write or --read, or --all for everything; `weir user revoke` takes all back"
                            .into(),
                    ));
                }
                let body =
                    json!({ "namespace": namespace, "configure": configure, "write": write, "read": read });
                let answer =
                    Server::new(&common.server)?.put(&format!("{}/permissions", path(&name)), &body)?;
                done(&common, &answer, &format!("changed what user {name} may do\n"))
            }
            UserCommand::Revoke { name, namespace, common } => {
                let path = format!("{}/permissions?namespace={}", path(&name), segment(&namespace));
                let answer = Server::new(&common.server)?.delete(&path)?;
                done(&common, &answer, &format!("user {name} may do nothing in {namespace} any more\n"))
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/users/{}", segment(name))
}

fn done(common: &Common, answer: &Value, text: &str) -> Result<(), Failure> {
    match common.output.output {
        Format::Json => output::print_json(answer),
        Format::Table => output::print_text(text),
    }
}

/// A row for each user and namespace.
fn table(users: &Value) -> Table {
    let mut table = Table::new(&["user", "tags", "namespace", "configure", "write", "read"]);
    for user in users.as_array().into_iter().flatten() {
        let tags: Vec<String> = user["tags"].as_array().into_iter().flatten().map(cell).collect();
        let own = [cell(&user["name"]), tags.join(",")];
        let permissions = user["permissions"].as_array().filter(|permissions| !permissions.is_empty());
        match permissions {
            None => table.row(own.into_iter().chain([const { String::new() }; 4])),
            Some(permissions) => {
                for permission in permissions {
                    let cells =
                        ["namespace", "configure", "write", "read"].map(|column| cell(&permission[column]));
                    table.row(own.clone().into_iter().chain(cells));
                }
            }
        }
    }
    table
}
