//! The documents say what the binary does: the commands in the README are run, and the reference of
//! configuration keys is made from their table.

use std::path::{Path, PathBuf};
use std::process::Command;

use weir::config::keys::{COARSER_KEYS, KEYS, Key, Kind};

use crate::support::{Said, Server, weir};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands in a document's `console` blocks, each with the output that is shown below it.
fn commands(document: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((_, output))) => output.push_str(&format!("{line}\n")),
                (None, None) => panic!("a console block begins without a command: {line}"),
            },
        }
    }
    commands
}

/// An output without what differs from run to run: numbers become `#`, and columns any width.
fn shape(output: &str) -> Vec<Vec<String>> {
    let word = |word: &str| {
        let mut shape = String::new();
        for c in word.chars() {
            match c {
                '0'..='9' if shape.ends_with('#') => {}
                '0'..='9' => shape.push('#'),
                c => shape.push(c),
            }
        }
        shape
    };
    output.lines().map(|line| line.split_whitespace().map(word).collect()).collect()
}

#[test]
fn the_readme_shows_what_its_commands_print() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let commands = commands(&readme);
    assert_eq!(commands[0].0, "weir serve");
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let announced = format!(
        "listening kafka {}\nlistening http {}\nready\n",
        server.kafka,
        server.http.trim_start_matches("http://")
    );
    assert_eq!(shape(&commands[0].1), shape(&announced));
    let binaries = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    assert!(commands.len() > 4);
    for (command, shown) in &commands[1..] {
        let ran: Said = Command::new("sh")
            .args(["-c", command])
            .current_dir(dir.path())
            .env("PATH", &path)
            .env("WEIR_SERVER", &server.http)
            .env("WEIR_BOOTSTRAP", &server.kafka)
            .env("WEIR_CONTEXTS", dir.path().join("contexts.toml"))
            .output()
            .unwrap()
            .into();
        assert_eq!(shape(&ran.ok()), shape(shown), "{command}");
    }
}

#[test]
fn every_verb_in_the_guide_exists() {
    let dir = tempfile::tempdir().unwrap();
    let guide = std::fs::read_to_string(root().join("docs/cli.md")).unwrap();
    let mut verbs = 0;
    for line in guide.lines().filter(|line| line.starts_with("| `weir ")) {
        let verb = line.split('`').nth(1).unwrap();
        let words: Vec<&str> = verb
            .split(' ')
            .skip(1)
            .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
            .collect();
        let words: Vec<&str> = words.iter().map(|word| word.trim_end_matches(',')).collect();
        // "topic list", `describe NAME` and the like: the noun with each verb.
        let others = line.split('|').nth(1).unwrap().split('`').skip(3).step_by(2);
        let others = others.filter_map(|other| Some(vec![words[0], other.split(' ').next()?]));
        for words in std::iter::once(words.clone()).chain(others) {
            let mut args = words.clone();
            args.push("--help");
            let ran: Said = weir(dir.path(), &args).output().unwrap().into();
            assert!(ran.status == Some(0), "weir {}: {}", words.join(" "), ran.err);
            verbs += 1;
        }
    }
    assert!(verbs > 20, "{verbs}");
}

const BEGIN: &str = "<!-- keys: made from the table, see the test -->\n";
const END: &str = "<!-- end of keys -->\n";

/// `UPDATE_DOCS=1 cargo test -p weir` writes the reference anew.
#[test]
fn the_reference_lists_every_key_with_its_default_and_bounds() {
    let file = root().join("docs/configuration.md");
    let document = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("the place where the keys begin");
    let (_, after) = rest.split_once(END).expect("the place where the keys end");
    let wanted = format!("{before}{BEGIN}{}{END}{after}", reference());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let document = std::fs::read_to_string(&file).unwrap();
    assert_eq!(document, wanted, "run UPDATE_DOCS=1 cargo test -p weir");
}

fn reference() -> String {
    let mut text = String::from("\n| key | default | values | what it does |\n|---|---|---|---|\n");
    for key in KEYS {
        let default = if key.default.is_empty() { "–".to_owned() } else { format!("`{}`", default(key)) };
        text.push_str(&format!("| `{}` | {default} | {} | {} |\n", key.name, values(key), key.doc));
    }
    text.push_str(
        "\nThese names set the same keys in coarser units. Within one source the finer unit wins.\n",
    );
    text.push_str("\n| name | sets | times |\n|---|---|---|\n");
    for coarser in COARSER_KEYS {
        text.push_str(&format!("| `{}` | `{}` | {} |\n", coarser.name, coarser.of, coarser.factor));
    }
    text.push('\n');
    text
}

fn default(key: &Key) -> String {
    key.default.replace(',', "`, `")
}

fn values(key: &Key) -> String {
    let range = |min: i64, max: i64| match max {
        i64::MAX => format!("from {min}"),
        max => format!("{min} to {max}"),
    };
    match key.kind {
        Kind::Text | Kind::List => format!("`{}`", key.value_name),
        Kind::Switch => "`true`, `false`".to_owned(),
        Kind::Number(min, max) => range(min, max),
        Kind::Size(min, max) => format!("{} bytes", range(min, max)),
        Kind::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
    }
}
