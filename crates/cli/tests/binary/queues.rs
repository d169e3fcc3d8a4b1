//! `weir queue` against a real server, whose queues were made and filled over RabbitMQ's management API.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Said, Server, said, weir};

fn started(dir: &Path) -> Server {
    Server::start_with(dir, &["--listen", "amqp-management=127.0.0.1:0"])
}

/// A request to the management API that must succeed, as `guest`.
#[track_caller]
fn manage(server: &Server, method: &str, path: &str, body: &Value) -> String {
    let address = server.listener("amqp-management").expect("it is served");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let body = body.to_string();
    let head = format!(
        "{method} /api/{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
    answer
}

fn declare(server: &Server, name: &str, arguments: Value) {
    let body = json!({ "durable": true, "arguments": arguments });
    manage(server, "PUT", &format!("queues/%2F/{name}"), &body);
}

fn publish(server: &Server, queue: &str, body: &str) {
    let message =
        json!({ "properties": {}, "routing_key": queue, "payload": body, "payload_encoding": "string" });
    manage(server, "POST", "exchanges/%2F/amq.default/publish", &message);
}

/// Takes the first messages of a queue and refuses them for good.
fn refuse(server: &Server, queue: &str, count: u32) {
    let get = json!({ "count": count, "ackmode": "reject_requeue_false", "encoding": "auto" });
    manage(server, "POST", &format!("queues/%2F/{queue}/get"), &get);
}

fn verb(server: &Server, dir: &Path, args: &[&str]) -> Said {
    said(&mut server.weir(dir, &[&["queue"], args].concat()))
}

fn records(server: &Server, dir: &Path, queue: &str) -> u64 {
    let described = verb(server, dir, &["describe", queue, "--output", "json"]).ok();
    serde_json::from_str::<Value>(&described).unwrap()["records"].as_u64().unwrap()
}

#[test]
fn a_queue_is_looked_at_purged_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let server = started(path);
    declare(&server, "orders", json!({ "x-max-length": 10 }));
    for number in 0..5 {
        publish(&server, "orders", &format!("order {number}"));
    }
    let listed = verb(&server, path, &["list"]).ok();
    let row: Vec<&str> = listed.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[..5], ["orders", "classic", "5", "0", "0"], "{listed}");
    let described = verb(&server, path, &["describe", "orders"]).ok();
    assert!(described.contains("x-max-length  10"), "{described}");

    let browsed: Value = serde_json::from_str(
        &verb(&server, path, &["browse", "orders", "--count", "2", "--output", "json"]).ok(),
    )
    .unwrap();
    let values: Vec<&str> =
        browsed.as_array().unwrap().iter().map(|one| one["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["order 0", "order 1"]);
    assert_eq!(records(&server, path, "orders"), 5, "they stay in it");

    let unasked = verb(&server, path, &["purge", "orders"]);
    assert_eq!(unasked.status, Some(64), "{}", unasked.err);
    assert_eq!(records(&server, path, "orders"), 5);
    let purged = verb(&server, path, &["purge", "orders", "--yes"]).ok();
    assert_eq!(purged, "purged 5 record(s) from queue orders\n");
    assert_eq!(records(&server, path, "orders"), 0);

    // One that is misspelt stops everything.
    let misspelt = verb(&server, path, &["delete", "orders", "odrers", "--yes"]);
    assert_eq!(misspelt.status, Some(1));
    assert!(misspelt.err.contains("odrers"), "{}", misspelt.err);
    assert_eq!(records(&server, path, "orders"), 0);
    assert_eq!(verb(&server, path, &["delete", "orders", "--yes"]).ok(), "deleted orders\n");
    assert_eq!(verb(&server, path, &["describe", "orders"]).status, Some(1));
}

#[test]
fn dead_records_are_taken_back_to_where_they_died() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let server = started(path);
    declare(&server, "dead", json!({}));
    for queue in ["orders", "bills"] {
        declare(&server, queue, json!({ "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead" }));
        for number in 0..3 {
            publish(&server, queue, &format!("{queue} {number}"));
        }
        refuse(&server, queue, 3);
    }
    // A dead record is there when it is durable.
    let mut there = 0;
    for _ in 0..600 {
        there = records(&server, path, "dead");
        if there == 6 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(there, 6);
    let browsed = verb(&server, path, &["browse", "dead", "--count", "1"]).ok();
    assert!(browsed.contains("orders") && browsed.contains("rejected"), "{browsed}");

    let some = verb(&server, path, &["redrive", "dead", "--count", "2", "--to", "bills", "--yes"]).ok();
    assert!(some.starts_with("took 2 record(s) of queue dead back\n  2 to bills"), "{some}");
    let rest = verb(&server, path, &["redrive", "dead", "--yes"]).ok();
    assert!(rest.contains("1 to orders") && rest.contains("3 to bills"), "{rest}");
    let all = ["dead", "orders", "bills"].map(|queue| records(&server, path, queue));
    assert_eq!(all, [0, 1, 5]);
}

#[test]
fn a_queue_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let server = started(path);
    for args in [
        &["describe", "none"][..],
        &["browse", "none"],
        &["purge", "none", "--yes"],
        &["redrive", "none", "--yes"],
    ] {
        let wrong = verb(&server, path, args);
        assert_eq!(wrong.status, Some(1), "{args:?}");
        assert!(wrong.err.contains("none"), "{args:?}: {}", wrong.err);
    }
    assert_eq!(said(&mut weir(path, &["queue", "redrive"])).status, Some(64));
}
