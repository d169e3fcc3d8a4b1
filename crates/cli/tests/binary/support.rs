//! Runs the binary without what the machine's own environment would tell it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A process that has not ended by then hangs. Far more than anything here takes.
const HANGS_AFTER: Duration = Duration::from_secs(180);

/// Waits for the end of a process, and ends one that hangs.
#[track_caller]
fn ended(child: Child) -> Output {
    let pid = child.id().to_string();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(child.wait_with_output()));
    match receive.recv_timeout(HANGS_AFTER) {
        Ok(output) => output.expect("its output can be read"),
        Err(_) => {
            let _ = Command::new("kill").args(["-s", "KILL", &pid]).status();
            let output = receive.recv().expect("it ends when it is killed").expect("its output can be read");
            panic!("it had not ended after {HANGS_AFTER:?}: {output:?}");
        }
    }
}

/// A command line of the binary in this directory, with none of our variables set.
pub fn weir(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_") {
            command.env_remove(name);
        }
    }
    command.env("WEIR_CONTEXTS", dir.join("contexts.toml"));
    command
}

/// What a finished run said, and its status.
#[derive(Debug)]
pub struct Said {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Exit status; none if a signal ended it.
    pub status: Option<i32>,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            status: output.status.code(),
        }
    }
}

impl Said {
    /// Standard output of a run that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.status, Some(0), "out: {}\nerr: {}", self.out, self.err);
        self.out
    }
}

/// Runs a command line to its end.
#[track_caller]
pub fn said(command: &mut Command) -> Said {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    ended(child.expect("the binary runs")).into()
}

/// Runs a command line to its end with this on standard input.
#[track_caller]
pub fn said_with_input(command: &mut Command, input: &str) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("the binary reads its input");
    drop(stdin);
    ended(child).into()
}

/// A server on free ports. Ends with the value, whatever happens.
pub struct Server {
    /// None when it has ended.
    child: Option<Child>,
    /// Where Kafka clients connect.
    pub kafka: String,
    /// Where the admin API is.
    pub http: String,
    /// What it has said until it was ready.
    lines: Vec<String>,
}

impl Server {
    /// Starts one with its data in `dir/data`.
    pub fn start(dir: &Path) -> Server {
        Server::start_with(dir, &[])
    }

    /// Starts one with further flags.
    pub fn start_with(dir: &Path, flags: &[&str]) -> Server {
        let listen = ["--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"];
        Server::run(dir, &[&listen, flags].concat())
    }

    /// Starts one whose Kafka listener is on this port, which was ours a moment ago.
    pub fn start_on(dir: &Path, port: &str) -> Server {
        Server::run(dir, &["--listen", &format!("kafka=127.0.0.1:{port}"), "--listen", "http=127.0.0.1:0"])
    }

    /// Starts one with these flags.
    pub fn run(dir: &Path, flags: &[&str]) -> Server {
        let args = [&["serve", "--data-dir", "data"], flags].concat();
        let mut child = weir(dir, &args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stdout = child.stdout.take().expect("it is piped");
        // Not a line further than `ready`: there is none, and reading on would wait for the end.
        let mut lines = Vec::new();
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let ready = line == "ready";
            lines.push(line);
            if ready {
                break;
            }
        }
        let address = |protocol: &str| {
            let prefix = format!("listening {protocol} ");
            lines.iter().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
        };
        match (address("kafka"), address("http"), lines.last().map(String::as_str)) {
            (Some(kafka), Some(http), Some("ready")) => {
                Server { child: Some(child), kafka, http: format!("http://{http}"), lines }
            }
            _ => {
                let ended = ended(child);
                panic!("it did not start: {lines:?}: {}", String::from_utf8_lossy(&ended.stderr));
            }
        }
    }

    /// Where a listener is, by its name.
    pub fn listener(&self, protocol: &str) -> Option<&str> {
        let prefix = format!("listening {protocol} ");
        self.lines.iter().find_map(|line| line.strip_prefix(&prefix))
    }

    /// A command line that speaks to this server.
    pub fn weir(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = weir(dir, args);
        command.env("WEIR_SERVER", &self.http).env("WEIR_BOOTSTRAP", &self.kafka);
        command
    }

    /// Sends a signal and waits for the end.
    #[track_caller]
    pub fn end(mut self, signal: &str) -> Said {
        let child = self.child.take().expect("it is running");
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        ended(child).into()
    }

    /// Waits for the end of one that ends by itself.
    #[track_caller]
    pub fn ended(mut self) -> Said {
        ended(self.child.take().expect("it is running")).into()
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it is running").id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
