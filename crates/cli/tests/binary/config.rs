//! `weir config show`, and the status and sentence of everything that is wrong before anything starts.

use serde_json::Value;

use crate::support::{said, weir};

/// The value and the origin of a key in `weir config show --output json`.
fn shown(out: &str, key: &str) -> (Value, Value) {
    let rows: Value = serde_json::from_str(out).expect("JSON");
    let row = rows.as_array().and_then(|rows| rows.iter().find(|row| row["key"] == key)).expect("the key");
    (row["value"].clone(), row["source"].clone())
}

#[test]
fn shows_where_each_value_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("weir.toml"), "num.partitions = 2\nlog.roll.ms = 5\nshards = 3\n")
        .unwrap();
    let args = ["config", "show", "--output", "json", "--num.partitions", "4", "--insecure"];
    let mut command = weir(dir.path(), &args);
    let ran = said(command.env("WEIR_NUM_PARTITIONS", "3").env("WEIR_LOG_ROLL_MS", "6"));
    assert_eq!((ran.err.as_str(), ran.status), ("", Some(0)));
    let flag = serde_json::json!({"kind": "flag", "name": "--num.partitions"});
    assert_eq!(shown(&ran.out, "num.partitions"), (4.into(), flag));
    let variable = serde_json::json!({"kind": "environment", "name": "WEIR_LOG_ROLL_MS"});
    assert_eq!(shown(&ran.out, "log.roll.ms"), (6.into(), variable));
    let file = serde_json::json!({"kind": "file", "name": "weir.toml"});
    assert_eq!(shown(&ran.out, "shards"), (3.into(), file));
    let default = serde_json::json!({"kind": "default"});
    assert_eq!(shown(&ran.out, "data-dir"), ("weir-data".into(), default));
    assert_eq!(shown(&ran.out, "insecure").0, Value::Bool(true));

    let table = said(&mut weir(dir.path(), &["config", "show"])).out;
    assert!(table.starts_with("KEY  "), "{table}");
    let line = table.lines().find(|line| line.starts_with("num.partitions ")).expect("the key");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["num.partitions", "2", "file", "weir.toml"]);
}

#[test]
fn a_bad_configuration_is_one_sentence_and_status_64() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bad.toml"), "num.partition = 2\n").unwrap();
    for (args, sentence) in [
        (
            &["config", "show", "--config", "bad.toml"][..],
            "weir: bad.toml: there is no key 'num.partition'; did you mean num.partitions?\n",
        ),
        (
            &["config", "show", "--config", "none.toml"],
            "weir: the file none.toml: it cannot be read: No such file or directory (os error 2)\n",
        ),
        (
            &["config", "show", "--num.partition", "2"],
            "weir: unexpected argument '--num.partition' found; did you mean --num.partitions?\n",
        ),
        (
            &["config", "show", "--listen", "kafka+tls=127.0.0.1:0"],
            "weir: the listener kafka+tls=127.0.0.1:0 needs a certificate; give --tls-certificate and --tls-key\n",
        ),
        (&["confg"], "weir: unrecognized subcommand 'confg'; did you mean config?\n"),
    ] {
        let ran = said(&mut weir(dir.path(), args));
        assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.status), ("", sentence, Some(64)), "{args:?}");
    }
}

#[test]
fn a_misspelt_variable_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ran = said(weir(dir.path(), &["config", "show"]).env("WEIR_SHARD", "4"));
    assert_eq!(ran.status, Some(64));
    assert_eq!(ran.err, "weir: the environment variable WEIR_SHARD sets no key; did you mean WEIR_SHARDS?\n");
}

#[test]
fn completions_name_the_verbs() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let ran = said(&mut weir(dir.path(), &["completions", shell]));
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        assert!(ran.out.contains("completions"), "{shell}");
    }
}
