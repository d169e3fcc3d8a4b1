//! `weir serve`: what it says when it is ready, how it stops, and what it refuses to start with.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use crate::support::{Said, Server, said, said_with_input, weir};

/// A server that must refuse to start: what it says and its status.
#[track_caller]
fn refused(dir: &Path, flags: &[&str]) -> (String, Option<i32>) {
    let args = ["serve", "--data-dir", "data", "--listen", "kafka=127.0.0.1:0", "--log-level", "error"];
    let args: Vec<&str> = args.iter().chain(flags).copied().collect();
    let Said { out, err, status } = said(&mut weir(dir, &args));
    assert_eq!(out, "");
    assert_eq!(err.lines().count(), 1, "one sentence: {err}");
    (err.trim_end().to_owned(), status)
}

#[test]
fn says_where_it_listens_once_it_does_and_stops_with_0() {
    let dir = tempfile::tempdir().unwrap();
    for signal in ["TERM", "INT"] {
        let server = Server::start(dir.path());
        for address in [server.kafka.as_str(), server.http.trim_start_matches("http://")] {
            TcpStream::connect(address).expect("everything listens before it is announced");
        }
        let ended = server.end(signal);
        assert_eq!(ended.status, Some(0), "{}", ended.err);
        assert!(!ended.err.contains("ERROR") && !ended.err.contains("WARN"), "{}", ended.err);
    }
}

#[test]
fn opens_only_the_listeners_that_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let log = said(&mut weir(dir.path(), &["config", "show", "--listen", "http=127.0.0.1:0"])).ok();
    assert!(log.lines().any(|line| line.starts_with("listen ") && line.contains("http=127.0.0.1:0")));
    assert!(!log.contains("kafka=127"));
}

#[test]
fn a_data_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let (sentence, status) = refused(dir.path(), &[]);
    let pid = server.pid();
    assert_eq!(
        sentence,
        format!(
            "weir: the data directory data is in use by process {pid}; stop that process or choose another directory"
        )
    );
    assert_eq!(status, Some(64));
}

#[test]
fn a_data_directory_of_another_format_node_or_layout_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Server::start(dir.path()).end("TERM").status, Some(0));
    assert_eq!(
        refused(dir.path(), &["--node-id", "2"]),
        (
            "weir: the data directory data was made with node-id 1, not 2; remove node-id from the configuration, or \
             choose another --data-dir"
                .to_owned(),
            Some(64)
        )
    );
    assert_eq!(refused(dir.path(), &["--shards", "3"]).1, Some(64));

    let file = dir.path().join("data/node.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("format-version = 1", "format-version = 5")).unwrap();
    assert_eq!(
        refused(dir.path(), &[]),
        (
            "weir: the data directory data has format version 5, this binary reads versions 1 to 4; use a newer \
             version of weir, or another directory"
                .to_owned(),
            Some(64)
        )
    );
    // That of a node that came back without its data, which one that is alone never does.
    fs::write(&file, text.replace("format-version = 1", "format-version = 3")).unwrap();
    let (sentence, status) = refused(dir.path(), &[]);
    assert!(sentence.contains("it has no phase"), "{sentence}");
    assert_eq!(status, Some(65));
    fs::write(&file, "format-version = ").unwrap();
    let (sentence, status) = refused(dir.path(), &[]);
    assert!(sentence.starts_with("weir: data/node.toml cannot be read: "), "{sentence}");
    assert_eq!(status, Some(65));
    fs::write(&file, [0xff; 100]).unwrap();
    let (sentence, status) = refused(dir.path(), &[]);
    assert!(sentence.starts_with("weir: data/node.toml cannot be read: it is not text"), "{sentence}");
    assert_eq!(status, Some(65));
}

#[test]
fn a_directory_with_something_else_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::write(dir.path().join("data/thesis.txt"), "years of work").unwrap();
    assert_eq!(
        refused(dir.path(), &[]),
        (
            "weir: data has no node.toml but is not empty (there is thesis.txt); choose another --data-dir, or restore \
             node.toml"
                .to_owned(),
            Some(64)
        )
    );
    assert_eq!(fs::read_to_string(dir.path().join("data/thesis.txt")).unwrap(), "years of work");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("http={}", taken.local_addr().unwrap());
    let (sentence, status) = refused(dir.path(), &["--listen", &listen]);
    assert_eq!(
        sentence,
        format!(
            "weir: cannot listen on {listen}: Address already in use (os error 98); choose another address with --listen"
        )
    );
    assert_eq!(status, Some(64));
}

#[test]
fn what_later_versions_serve_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let sentence = "weir: listen 'openwire=127.0.0.1:0': the protocol openwire is not served by this version; these are: \
                    kafka, kafka+tls, amqp, amqps, amqp-management, http, https, cluster";
    let flags = ["--listen", "openwire=127.0.0.1:0"];
    assert_eq!(refused(dir.path(), &flags), (sentence.to_owned(), Some(64)));
    assert!(!dir.path().join("data").exists(), "nothing is made before the configuration is accepted");
}

#[test]
fn records_and_positions_survive_a_stop_and_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let mut written = Vec::new();
    for (round, signal) in ["TERM", "KILL", "KILL", "TERM"].into_iter().enumerate() {
        let server = Server::start(path);
        let line = format!("round {round}");
        let sent = said_with_input(&mut server.weir(path, &["produce", "t"]), &format!("{line}\n"));
        assert_eq!(sent.ok(), "1 record(s) to t\n");
        written.push(line);
        let all = said(&mut server.weir(path, &["consume", "t", "--until-end"])).ok();
        assert_eq!(all.lines().collect::<Vec<_>>(), written);
        let news = said(&mut server.weir(path, &["consume", "t", "--group", "g", "--count", "1"])).ok();
        assert_eq!(news, format!("round {round}\n"), "the group goes on where it was");
        server.end(signal);
    }
    let checked = said(&mut weir(path, &["log", "verify", "data"])).ok();
    assert!(checked.contains(".log") && !checked.contains("DAMAGED"), "{checked}");
}

#[test]
fn a_log_in_json_is_one_object_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let ended = Server::start_with(dir.path(), &["--log-format", "json"]).end("TERM");
    assert!(!ended.err.is_empty());
    for line in ended.err.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}

/// Writes three records, ends the server, and damages the first of them in the journal.
fn damaged_journal(path: &Path, signal: &str) {
    let server = Server::start(path);
    for line in ["marked for damage", "one", "two"] {
        said_with_input(&mut server.weir(path, &["produce", "t"]), &format!("{line}\n")).ok();
    }
    server.end(signal);
    let marked = fs::read_dir(path.join("data/journal")).unwrap().find_map(|entry| {
        let file = entry.unwrap().path();
        let bytes = fs::read(&file).unwrap();
        let at = bytes.windows(17).position(|window| window == b"marked for damage")?;
        Some((file, bytes, at))
    });
    let (file, mut bytes, at) = marked.expect("the record is in the journal");
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
}

/// The position that a refused start says to accept.
fn position_to_accept(path: &Path) -> String {
    let (sentence, status) = refused(path, &[]);
    assert_eq!(status, Some(65), "{sentence}");
    assert!(sentence.contains("journal is corrupt") || sentence.contains("is corrupt"), "{sentence}");
    let position = sentence
        .split("--journal-accept-loss-from ")
        .nth(1)
        .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    position.expect("the position to accept").to_owned()
}

#[test]
fn a_damaged_journal_stops_the_start_until_the_loss_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    damaged_journal(path, "KILL");
    let checked = said(&mut weir(path, &["log", "verify", "data"]));
    assert_eq!(checked.status, Some(65), "{}", checked.out);
    let position = position_to_accept(path);
    // What is lost stands nowhere else, and what follows on it cannot be applied without it.
    let server = Server::start_with(path, &["--journal-accept-loss-from", &position]);
    assert_eq!(said(&mut server.weir(path, &["consume", "t", "--until-end"])).ok(), "");
    let sent = said_with_input(&mut server.weir(path, &["produce", "t"]), "anew\n");
    assert_eq!(sent.ok(), "1 record(s) to t\n");
    let ended = server.end("TERM");
    assert!(ended.err.contains("entries are lost or follow on lost ones"), "{}", ended.err);
    // From then on it starts as any other.
    let server = Server::start(path);
    assert_eq!(said(&mut server.weir(path, &["consume", "t", "--until-end"])).ok(), "anew\n");
}

#[test]
fn damage_to_what_a_checkpoint_has_can_be_accepted_and_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    damaged_journal(path, "TERM");
    let position = position_to_accept(path);
    let server = Server::start_with(path, &["--journal-accept-loss-from", &position]);
    let all = said(&mut server.weir(path, &["consume", "t", "--until-end"])).ok();
    assert_eq!(all, "marked for damage\none\ntwo\n");
    assert_eq!(server.end("TERM").status, Some(0));
    let server = Server::start(path);
    assert_eq!(said(&mut server.weir(path, &["consume", "t", "--until-end"])).ok().lines().count(), 3);
}
