//! The verbs against a real server: what people and programs get to read.

use std::path::Path;

use serde_json::Value;

use crate::support::{Said, Server, said, said_with_input, weir};

fn json(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

#[test]
fn the_life_of_a_topic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let server = Server::start(path);
    let run = |args: &[&str]| said(&mut server.weir(path, args));

    let created =
        run(&["topic", "create", "orders", "--partitions", "2", "--config", "retention.ms=1000000"]);
    assert_eq!(created.ok(), "created topic orders with 2 partition(s)\n");
    let again = run(&["topic", "create", "orders"]);
    assert_eq!(again.status, Some(1));
    assert!(again.err.starts_with("weir: the topic 'orders' exists already; "), "{}", again.err);

    let topics = json(&run(&["topic", "list", "--output", "json"]).ok());
    assert_eq!((&topics[0]["name"], &topics[0]["partitions"]), (&"orders".into(), &2.into()));

    let altered = run(&["topic", "alter", "orders", "--partitions", "3", "--config", "segment.bytes=100000"]);
    assert_eq!(altered.ok(), "altered topic orders\n");
    let described = run(&["topic", "describe", "orders"]).ok();
    assert!(described.contains("segment.bytes  100000"), "{described}");
    let topic = json(&run(&["topic", "describe", "orders", "--output", "json"]).ok());
    assert_eq!(topic["partition_list"].as_array().map(Vec::len), Some(3));
    let taken_back = run(&["topic", "alter", "orders", "--unset", "segment.bytes"]);
    assert_eq!(taken_back.ok(), "altered topic orders\n");
    assert!(!run(&["topic", "describe", "orders"]).ok().contains("segment.bytes"));

    let wrong = run(&["topic", "alter", "orders", "--config", "cleanup.policy=compact"]);
    assert_eq!(wrong.status, Some(1));
    assert_eq!(
        wrong.err,
        "weir: cleanup.policy: 'compact' is not supported; only delete is; `weir topic describe --all` lists every \
         setting of a topic\n"
    );

    let unasked = run(&["topic", "delete", "orders"]);
    assert_eq!(unasked.status, Some(64));
    assert!(unasked.err.ends_with("add --yes if that is meant\n"), "{}", unasked.err);
    assert_eq!(run(&["topic", "delete", "orders", "--yes"]).ok(), "deleted orders\n");
    let gone = run(&["topic", "describe", "orders"]);
    assert_eq!(gone.err, "weir: there is no topic 'orders'; `weir topic list` lists the topics\n");
    assert_eq!(gone.status, Some(1));
}

#[test]
fn records_with_keys_headers_and_every_compression() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let server = Server::start(path);
    let mut expected = Vec::new();
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let lines: String = (0..200).map(|n| format!("key {n}:{compression} {n}\n")).collect();
        let args =
            ["produce", "t", "--key-delimiter", ":", "--header", "by=test", "--compression", compression];
        let sent = said_with_input(&mut server.weir(path, &args), &lines);
        assert_eq!(sent.ok(), "200 record(s) to t\n");
        expected.extend(lines.lines().map(str::to_owned));
    }
    let args = ["consume", "t", "--until-end", "--key-delimiter", ":"];
    let mut all: Vec<String> = said(&mut server.weir(path, &args)).ok().lines().map(str::to_owned).collect();
    all.sort();
    expected.sort();
    assert_eq!(all, expected);

    let args = ["consume", "t", "--from", "3", "--count", "1", "--output", "json"];
    let record = json(&said(&mut server.weir(path, &args)).ok());
    assert_eq!(record["offset"], 3);
    assert_eq!(record["headers"], serde_json::json!([{ "key": "by", "value": "test" }]));

    let keyless =
        said_with_input(&mut server.weir(path, &["produce", "t", "--key-delimiter", ":"]), "no key here\n");
    assert_eq!(keyless.status, Some(1));
    assert_eq!(keyless.err, "weir: line 1 has no ':', so it has no key\n");
}

#[test]
fn a_group_is_described_moved_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let server = Server::start(path);
    let run = |args: &[&str]| said(&mut server.weir(path, args));
    let lines: String = (0..10).map(|n| format!("{n}\n")).collect();
    said_with_input(&mut server.weir(path, &["produce", "t"]), &lines).ok();
    assert_eq!(run(&["consume", "t", "--group", "g", "--count", "4"]).ok(), "0\n1\n2\n3\n");

    let group = json(&run(&["group", "describe", "g", "--output", "json"]).ok());
    assert_eq!((&group["state"], &group["total_lag"]), (&"Empty".into(), &6.into()));
    assert_eq!(group["positions"][0]["offset"], 4);

    let preview = json(&run(&["group", "reset", "g", "--to", "start", "--dry-run", "--output", "json"]).ok());
    assert_eq!((&preview[0]["from"], &preview[0]["to"]), (&4.into(), &0.into()));
    let group = json(&run(&["group", "describe", "g", "--output", "json"]).ok());
    assert_eq!(group["positions"][0]["offset"], 4, "a dry run moves nothing");

    run(&["group", "reset", "g", "--to", "7", "--yes"]).ok();
    assert_eq!(run(&["consume", "t", "--group", "g", "--count", "3"]).ok(), "7\n8\n9\n");
    run(&["group", "reset", "g", "--to", "@2001-01-01", "--topic", "t", "--yes"]).ok();
    assert_eq!(run(&["consume", "t", "--group", "g", "--count", "1"]).ok(), "0\n");

    assert_eq!(json(&run(&["group", "list", "--output", "json"]).ok())[0]["name"], "g");
    assert_eq!(run(&["group", "delete", "g", "--yes"]).ok(), "deleted group g\n");
    let gone = run(&["group", "describe", "g"]);
    assert_eq!(gone.err, "weir: there is no group 'g'; `weir group list` lists the groups\n");
}

#[test]
fn stored_files_are_listed_dumped_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let server = Server::start(path);
    said_with_input(&mut server.weir(path, &["produce", "t"]), "one\ntwo\n").ok();
    let logs = json(&said(&mut server.weir(path, &["log", "list", "--output", "json"])).ok());
    assert_eq!((&logs[0]["topic"], &logs[0]["next_offset"]), (&"t".into(), &2.into()));
    let directory = format!("data/{}", logs[0]["directory"].as_str().expect("a directory"));
    assert_eq!(server.end("TERM").status, Some(0));

    let dump = said(&mut weir(path, &["log", "dump", &directory, "--records"])).ok();
    assert!(dump.contains("value \"one\"") && dump.contains("value \"two\""), "{dump}");
    let lines = said(&mut weir(path, &["log", "dump", &directory, "--output", "json"])).ok();
    let batch = json(lines.lines().next().expect("a batch"));
    assert_eq!((&batch["base_offset"], &batch["state"]), (&0.into(), &"ok".into()));
    said(&mut weir(path, &["log", "verify", "data"])).ok();

    // What a checkpoint names must be there, and the checkpoint itself must be sound.
    let shard = Path::new(&directory).parent().expect("the shard's directory").to_owned();
    let manifest = path.join(shard).join("checkpoint/manifest");
    let sound = std::fs::read(&manifest).unwrap();
    let mut bytes = sound.clone();
    bytes[20] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    let damaged = said(&mut weir(path, &["log", "verify", "data"]));
    assert_eq!(damaged.status, Some(65));
    assert!(damaged.out.contains("its checksum does not fit"), "{}", damaged.out);
    std::fs::write(&manifest, sound).unwrap();
    let directory_elsewhere = path.join("elsewhere");
    std::fs::rename(path.join(&directory), &directory_elsewhere).unwrap();
    assert_eq!(said(&mut weir(path, &["log", "verify", "data"])).status, Some(65));
    std::fs::rename(directory_elsewhere, path.join(&directory)).unwrap();
    said(&mut weir(path, &["log", "verify", "data"])).ok();

    let file = std::fs::read_dir(path.join(&directory))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|file| file.extension().is_some_and(|extension| extension == "log"))
        .expect("a segment file");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let damaged = said(&mut weir(path, &["log", "verify", "data"]));
    assert_eq!(damaged.status, Some(65));
    assert!(
        damaged.out.contains("DAMAGED (1): at byte ") && damaged.out.contains(": the batch's CRC-32C is "),
        "{}",
        damaged.out
    );
}

#[test]
fn health_metrics_and_errors_of_the_admin_api() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let get = |path: &str| http(&server.http, &format!("GET {path}"), "");
    assert_eq!(get("/health/live"), (200, r#"{"status":"live"}"#.to_owned()));
    assert_eq!(get("/health/ready"), (200, r#"{"status":"ready"}"#.to_owned()));
    let (status, metrics) = get("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("# TYPE weir_") && metrics.ends_with("# EOF\n"), "{metrics}");
    assert_eq!(json(&get("/api/v1/cluster").1)["ready"], true);
    let config = json(&get("/api/v1/config").1);
    assert!(config.as_array().is_some_and(|keys| keys.iter().any(|key| key["key"] == "num.partitions")));
    for (request, body, status, error) in [
        ("GET /api/v1/topics/none", "", 404, "unknown_topic"),
        ("GET /nowhere", "", 404, "no_such_path"),
        ("PUT /api/v1/topics", "", 405, "no_such_method"),
        ("POST /api/v1/topics", "{", 400, "bad_request"),
        ("POST /api/v1/topics", r#"{"name": "a b"}"#, 400, "invalid_name"),
        ("POST /api/v1/topics", r#"{"name": "t", "colour": 1}"#, 400, "bad_request"),
        ("POST /api/v1/groups/none/reset", r#"{"to": "start"}"#, 404, "unknown_group"),
        ("POST /api/v1/groups/none/reset", r#"{"to": "noon"}"#, 400, "bad_request"),
    ] {
        let (got, answer) = http(&server.http, request, body);
        let answer = json(&answer);
        assert_eq!((got, &answer["error"]), (status, &error.into()), "{request}: {answer}");
        assert!(answer["message"].as_str().is_some_and(|words| !words.is_empty()), "{answer}");
        assert!(answer["remedy"].as_str().is_some_and(|words| !words.is_empty()), "{answer}");
    }
    let host = server.http.trim_start_matches("http://");
    for (origin, status) in [(server.http.as_str(), 201), ("http://evil.example", 403), ("null", 403)] {
        let request =
            format!("POST /api/v1/topics HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nConnection: close");
        assert_eq!(http_with_head(&server.http, &request, r#"{"name": "o"}"#).0, status, "{origin}");
    }
    let large = format!(r#"{{"name": "{}"}}"#, "x".repeat(2 << 20));
    assert_eq!(http(&server.http, "POST /api/v1/topics", &large).0, 413);
}

/// One request over a socket of its own: status and body.
fn http(server: &str, request: &str, body: &str) -> (u16, String) {
    let host = server.trim_start_matches("http://");
    let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close");
    http_with_head(server, &head, body)
}

fn http_with_head(server: &str, request: &str, body: &str) -> (u16, String) {
    use std::io::{Read, Write};
    let mut socket = std::net::TcpStream::connect(server.trim_start_matches("http://")).expect("it listens");
    let head = format!("{request}\r\nContent-Length: {}\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).expect("it reads");
    // A server that refuses a large body may close before it has read all of it.
    let _ = socket.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {request}: {answer}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

#[test]
fn a_benchmark_measures_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let server = Server::start(path);
    let run = |args: &[&str]| json(&said(&mut server.weir(path, args)).ok());
    let produced = run(&["bench", "produce", "b", "--records", "2000", "--size", "100", "--output", "json"]);
    assert_eq!((&produced["records"], &produced["bytes"]), (&2000.into(), &200_000.into()));
    assert!(produced["latency_ms"]["durable"]["p99"].as_f64().is_some_and(|ms| ms > 0.0), "{produced}");
    let consumed = run(&["bench", "consume", "b", "--output", "json"]);
    assert_eq!(consumed["records"], 2000);
    let args = ["bench", "latency", "l", "--records", "100", "--rate", "1000", "--output", "json"];
    let latency = run(&args);
    assert!(latency["latency_ms"]["read"]["p50"].as_f64().is_some_and(|ms| ms > 0.0), "{latency}");
}

#[test]
fn nobody_there_is_69_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let Said { err, status, .. } =
        said(&mut weir(dir.path(), &["topic", "list", "--server", "http://127.0.0.1:1"]));
    assert_eq!(status, Some(69));
    assert_eq!(
        err,
        "weir: http://127.0.0.1:1 cannot be reached: Connection refused (os error 111); start one with `weir serve`, \
         or name another with --server\n"
    );
    let consume = said(&mut weir(dir.path(), &["consume", "t", "--bootstrap", "127.0.0.1:1"]));
    assert_eq!(consume.status, Some(69), "{}", consume.err);
}

#[test]
fn contexts_are_saved_used_and_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let run = |args: &[&str]| said(&mut weir(path, args));
    run(&["context", "set", "here", "--server", "http://127.0.0.1:1"]).ok();
    run(&["context", "set", "there", "--server", "http://127.0.0.1:2", "--bootstrap", "127.0.0.1:3"]).ok();
    assert!(run(&["topic", "list"]).err.contains("http://127.0.0.1:1 cannot be reached"));
    assert!(run(&["topic", "list", "--context", "there"]).err.contains("http://127.0.0.1:2 cannot"));
    run(&["context", "use", "there"]).ok();
    let contexts = json(&run(&["context", "list", "--output", "json"]).ok());
    assert_eq!((&contexts[1]["name"], &contexts[1]["current"]), (&"there".into(), &true.into()));
    let misspelt = run(&["topic", "list", "--context", "ther"]);
    assert_eq!(
        (misspelt.err.as_str(), misspelt.status),
        ("weir: there is no context 'ther'; did you mean there?\n", Some(64))
    );
    run(&["context", "delete", "there"]).ok();
    assert!(run(&["topic", "list"]).err.contains("http://127.0.0.1:9347"));
}
