//! Runs the binary without what the machine's own environment would tell it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

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
pub fn said(command: &mut Command) -> Said {
    command.stdin(Stdio::null()).output().expect("the binary runs").into()
}

/// Runs a command line to its end with this on standard input.
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
    child.wait_with_output().expect("the binary ends").into()
}

/// A server on free ports. Ends with the value, whatever happens.
pub struct Server {
    child: Child,
    /// Where Kafka clients connect.
    pub kafka: String,
    /// Where the admin API is.
    pub http: String,
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

    fn run(dir: &Path, flags: &[&str]) -> Server {
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
                Server { child, kafka, http: format!("http://{http}") }
            }
            _ => {
                let ended = child.wait_with_output().expect("it ends");
                panic!("it did not start: {lines:?}: {}", String::from_utf8_lossy(&ended.stderr));
            }
        }
    }

    /// A command line that speaks to this server.
    pub fn weir(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = weir(dir, args);
        command.env("WEIR_SERVER", &self.http).env("WEIR_BOOTSTRAP", &self.kafka);
        command
    }

    /// Sends a signal and waits for the end.
    pub fn end(mut self, signal: &str) -> Said {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill runs");
        assert!(sent.success());
        let mut err = String::new();
        let mut stderr = self.child.stderr.take().expect("it is piped");
        std::io::Read::read_to_string(&mut stderr, &mut err).expect("text");
        let status = self.child.wait().expect("it ends").code();
        Said { out: String::new(), err, status }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
