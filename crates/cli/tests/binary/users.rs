//! Users: what changes for everybody when the first one is created, and what nobody gets without a password.

use std::fs;
use std::process::Command;

use crate::support::{Server, said, said_with_input, weir};

/// As `ops`, an administrator.
fn as_ops(mut command: Command) -> Command {
    command.env("WEIR_USER", "ops").env("WEIR_PASSWORD", "operating");
    command
}

#[test]
fn everybody_has_to_say_who_they_are_once_there_is_a_user() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let run = |args: &[&str]| said(&mut server.weir(dir.path(), args));
    let ops = |args: &[&str]| said(&mut as_ops(server.weir(dir.path(), args)));
    run(&["topic", "create", "orders"]).ok();
    let created = said_with_input(
        &mut server.weir(dir.path(), &["user", "create", "ops", "--tag", "administrator"]),
        "operating\n",
    );
    assert!(created.ok().starts_with("created user ops\n"));
    let refused = run(&["topic", "list"]);
    assert_eq!(refused.status, Some(1));
    assert_eq!(
        refused.err,
        "weir: users were created here, so that everybody has to say who they are; name a user with --user or WEIR_USER, \
         and put its password into WEIR_PASSWORD\n"
    );
    assert!(ops(&["topic", "list"]).ok().contains("orders"));
    ops(&["user", "grant", "ops", "--all"]).ok();
    let users = ops(&["user", "list"]).ok();
    assert!(users.contains("guest") && users.contains("ops") && users.contains("administrator"), "{users}");
    let mut produce = as_ops(server.weir(dir.path(), &["produce", "orders"]));
    said_with_input(&mut produce, "apples\n").ok();
    assert_eq!(ops(&["consume", "orders", "--from", "start", "--count", "1"]).ok(), "apples\n");
    let nobody = run(&["consume", "orders", "--from", "start", "--count", "1"]);
    assert_ne!(nobody.status, Some(0));
    let wrong =
        said(server.weir(dir.path(), &["topic", "list", "--user", "ops"]).env("WEIR_PASSWORD", "other"));
    assert!(wrong.err.contains("check --user and WEIR_PASSWORD"), "{}", wrong.err);
    let none = run(&["topic", "list", "--user", "ops"]);
    assert!(none.err.contains("there is no password for user ops"), "{}", none.err);
    // The default user is not needed any more, the last administrator is.
    ops(&["user", "delete", "guest", "--yes"]).ok();
    assert!(ops(&["user", "delete", "ops", "--yes"]).err.contains("last administrator"));
    let server_log = server.end("TERM");
    assert!(server_log.err.contains("a Kafka client did not authenticate"), "{}", server_log.err);
}

#[test]
fn passwords_come_from_files_that_nobody_else_reads() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let file = dir.path().join("shop.password");
    fs::write(&file, "selling\nsomething else\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let create = ["user", "create", "shop", "--password-file", "shop.password", "--tag", "monitoring"];
    let created = said(&mut server.weir(dir.path(), &create));
    assert_eq!(created.err, "");
    created.ok();
    // A context keeps the file's name and never what is in it.
    let contexts = dir.path().join("contexts.toml");
    let with_contexts = |args: &[&str]| {
        let mut command = weir(dir.path(), args);
        command.env("WEIR_CONTEXTS", &contexts);
        said(&mut command)
    };
    let set = [
        "context",
        "set",
        "here",
        "--server",
        &server.http,
        "--user",
        "shop",
        "--password-file",
        "shop.password",
    ];
    with_contexts(&set).ok();
    assert!(with_contexts(&["user", "list"]).ok().contains("shop"));
    assert!(!fs::read_to_string(&contexts).unwrap().contains("selling"));
    // Another server is not told the context's password.
    let elsewhere = with_contexts(&["user", "list", "--server", &server.http]);
    assert!(elsewhere.err.contains("everybody has to say who they are"), "{}", elsewhere.err);
    let forbidden = with_contexts(&["topic", "create", "t"]);
    assert!(forbidden.err.contains("user 'shop' has not the tag 'administrator'"), "{}", forbidden.err);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(with_contexts(&["user", "list"]).err.contains("can be read by other users"));
    let missing = said(&mut server.weir(dir.path(), &["user", "create", "x", "--password-file", "none"]));
    assert!(missing.err.contains("the password file none cannot be read"), "{}", missing.err);
}

#[test]
fn a_listener_that_others_reach_is_opened_once_there_are_users() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["serve", "--data-dir", "data", "--listen", "kafka=0.0.0.0:0", "--listen", "http=127.0.0.1:0"];
    let refused = said(&mut weir(dir.path(), &args));
    assert!(refused.err.contains("create a user first"), "{}", refused.err);
    assert_eq!(refused.status, Some(64));
    let server = Server::start(dir.path());
    said_with_input(&mut server.weir(dir.path(), &["user", "create", "ann", "--password-file", "-"]), "x\n")
        .ok();
    server.end("TERM").ok();
    let everywhere = Server::run(dir.path(), &args[3..]);
    assert!(everywhere.kafka.starts_with("0.0.0.0:"));
}

#[test]
fn a_bad_certificate_is_named_before_anything_is_served() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("c.pem"), "no certificate").unwrap();
    let listen = ["serve", "--data-dir", "data", "--listen", "kafka+tls=127.0.0.1:0"];
    let files = ["--tls-certificate", "c.pem", "--tls-key", "none.pem"];
    let refused = said(&mut weir(dir.path(), &[&listen[..], &files].concat()));
    assert!(
        refused.err.contains("the certificate file c.pem: there is no certificate in it"),
        "{}",
        refused.err
    );
    assert_eq!(refused.status, Some(64));
}
