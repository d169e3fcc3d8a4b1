//! Transcripts of the group coordinator. Each file in `groups/` is a scenario: commands at the start
//! of a line, what came of them indented below. `UPDATE=1 cargo test` writes what comes of them now;
//! the difference is then read like any other change.
//!
//! ```text
//! options delay=0 size=3 min=10 max=60000   before everything else
//! at 500                                    time moves on to 500 ms; what falls due on the way is shown
//! join A [key=value]…                       A names the request; a new member's id is A-id
//! sync A member=… gen=… [A-id=data]…        heartbeat, leave, commit likewise
//! stored [fail]                             what is being stored is durable, or failed. The number of
//!                                           a generation is stored by itself, until `manual`
//! manual                                    from here on `stored` is needed for that, too
//! restart                                   a new coordinator from the last durable membership
//! stop                                      the coordinator moves elsewhere
//! state                                     the group as described
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use weir_broker::groups::*;
use weir_broker::{GroupError, GroupOptions, Unavailable};
use weir_model::command::GroupMembership;

#[test]
fn transcripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/groups");
    let update = std::env::var_os("UPDATE").is_some();
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no scenarios in {}", dir.display());
    let mut wrong = Vec::new();
    for file in files {
        let expected = std::fs::read_to_string(&file).unwrap();
        let actual = Script::default().run(&expected);
        if update {
            std::fs::write(&file, actual).unwrap();
        } else if actual != expected {
            wrong.push(format!("{}:\n{actual}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "these differ (UPDATE=1 accepts them):\n{}", wrong.join("\n"));
}

struct Script {
    options: Arc<GroupOptions>,
    group: Coordinator,
    now: Moment,
    labels: Vec<String>,
    stores: BTreeMap<u64, GroupMembership>,
    manual: bool,
    durable: GroupMembership,
    out: String,
}

impl Default for Script {
    fn default() -> Self {
        let options = Arc::new(GroupOptions {
            session_timeout_ms_min: 100,
            initial_rebalance_delay_ms: 0,
            ..GroupOptions::default()
        });
        Script {
            group: Coordinator::new(options.clone()),
            options,
            now: 0,
            labels: Vec::new(),
            stores: BTreeMap::new(),
            manual: false,
            durable: GroupMembership::default(),
            out: String::new(),
        }
    }
}

impl Script {
    fn run(mut self, script: &str) -> String {
        for line in script.lines().filter(|line| !line.starts_with(' ')) {
            self.out.push_str(line);
            self.out.push('\n');
            if !line.is_empty() && !line.starts_with('#') {
                self.step(line);
            }
        }
        self.out
    }

    fn step(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap();
        let mut args: Vec<&str> = words.collect();
        match verb {
            "options" => return self.set_options(&args),
            "at" => return self.move_to(args[0].parse().unwrap()),
            "state" => return self.show_state(),
            "restart" => {
                self.group = Coordinator::restore(self.options.clone(), &self.durable, self.now);
                return;
            }
            "stop" => return self.input(Input::Stop(Unavailable::NotLeader { leader: None }.into())),
            "manual" => {
                self.manual = true;
                return;
            }
            "stored" => {
                let failed = args.first() == Some(&"fail");
                let (store, membership) = self.stores.pop_first().expect("something to be stored");
                return self.stored(store, membership, failed);
            }
            _ => {}
        }
        let label = args.remove(0).to_owned();
        let ticket = Ticket(self.labels.len() as u64);
        self.labels.push(label.clone());
        let args = Args::parse(&args);
        let input = match verb {
            "join" => Input::Join(ticket, args.join(), format!("{label}-id")),
            "sync" => Input::Sync(ticket, args.sync()),
            "heartbeat" => Input::Heartbeat(
                ticket,
                HeartbeatRequest {
                    group: "g".into(),
                    generation: args.number("gen", 1),
                    member_id: args.text("member"),
                    instance_id: args.optional("instance"),
                },
            ),
            "leave" => Input::Leave(
                ticket,
                LeaveRequest {
                    group: "g".into(),
                    members: args
                        .text("members")
                        .split(',')
                        .map(|one| {
                            let (member, instance) = one.split_once('/').unwrap_or((one, ""));
                            LeavingMember {
                                member_id: member.into(),
                                instance_id: Some(instance.to_owned()).filter(|i| !i.is_empty()),
                            }
                        })
                        .collect(),
                },
            ),
            "commit" => {
                Input::Commit(ticket, args.number("gen", -1), args.text("member"), args.optional("instance"))
            }
            _ => panic!("unknown verb in: {line}"),
        };
        self.input(input);
    }

    fn set_options(&mut self, args: &[&str]) {
        let args = Args::parse(args);
        let defaults = self.options.as_ref().clone();
        self.options = Arc::new(GroupOptions {
            initial_rebalance_delay_ms: args.number("delay", 0),
            size_max: args.number("size", 100) as usize,
            session_timeout_ms_min: args.number("min", defaults.session_timeout_ms_min),
            session_timeout_ms_max: args.number("max", defaults.session_timeout_ms_max),
            ..defaults
        });
        self.group = Coordinator::new(self.options.clone());
    }

    fn move_to(&mut self, to: Moment) {
        assert!(to >= self.now, "time goes back");
        while let Some(deadline) = self.group.next_deadline().filter(|deadline| *deadline <= to) {
            assert!(deadline > self.now || self.now == 0, "a deadline that has passed stays due");
            self.now = deadline;
            let before = self.out.len();
            self.input(Input::Tick);
            if self.out.len() > before {
                let shown = self.out.split_off(before);
                let _ = writeln!(self.out, "  (at {})", self.now);
                self.out.push_str(&shown);
            }
        }
        self.now = to;
    }

    fn stored(&mut self, store: u64, membership: GroupMembership, failed: bool) {
        if !failed {
            self.durable = membership;
        }
        let result = if failed { Err(Unavailable::TimedOut) } else { Ok(()) };
        self.input(Input::Stored(StoreId(store), result));
    }

    fn input(&mut self, input: Input) {
        for action in self.group.handle(input, self.now) {
            let line = match action {
                Action::Answer(ticket, answer) => {
                    format!("{}: {}", self.labels[ticket.0 as usize], show(&answer))
                }
                Action::Store(store, membership) => {
                    let forming = membership.leader.is_none() && !membership.members.is_empty();
                    if forming && !self.manual {
                        self.stored(store.0, membership, false);
                        continue;
                    }
                    let members: Vec<String> = membership
                        .members
                        .iter()
                        .map(|m| format!("{}={}", m.member_id, text(&m.assignment)))
                        .collect();
                    let what = if forming { "store number" } else { "store" };
                    let line =
                        format!("{what} gen={} members=[{}]", membership.generation, members.join(" "));
                    self.stores.insert(store.0, membership);
                    line
                }
            };
            let _ = writeln!(self.out, "  {line}");
        }
    }

    fn show_state(&mut self) {
        let group = self.group.describe("g");
        let _ = writeln!(
            self.out,
            "  {} gen={} type={} protocol={} next={:?}",
            group.state.name(),
            group.generation,
            group.protocol_type,
            group.protocol,
            self.group.next_deadline()
        );
        for member in group.members {
            let _ = writeln!(
                self.out,
                "  {} instance={:?} metadata={} assignment={}",
                member.member_id,
                member.instance_id,
                text(&member.metadata),
                text(&member.assignment)
            );
        }
    }
}

struct Args<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Args<'a> {
    fn parse(words: &[&'a str]) -> Args<'a> {
        Args(words.iter().map(|word| word.split_once('=').unwrap_or((word, ""))).collect())
    }

    fn optional(&self, key: &str) -> Option<String> {
        self.0.iter().find(|(k, _)| *k == key).map(|(_, v)| (*v).to_owned())
    }

    fn text(&self, key: &str) -> String {
        self.optional(key).unwrap_or_default()
    }

    fn number(&self, key: &str, default: i32) -> i32 {
        self.optional(key).map_or(default, |value| value.parse().unwrap())
    }

    fn join(&self) -> JoinRequest {
        let protocols = self.optional("protocols").unwrap_or("range:r".into());
        JoinRequest {
            group: "g".into(),
            member_id: self.text("member"),
            instance_id: self.optional("instance"),
            client_id: "client".into(),
            client_host: "host".into(),
            session_timeout_ms: self.number("session", 10_000),
            rebalance_timeout_ms: self.number("rebalance", 30_000),
            protocol_type: self.optional("type").unwrap_or("consumer".into()),
            protocols: protocols
                .split(',')
                .filter(|one| !one.is_empty())
                .map(|one| {
                    let (name, data) = one.split_once(':').unwrap_or((one, ""));
                    (name.to_owned(), Bytes::copy_from_slice(data.as_bytes()))
                })
                .collect(),
            require_known_member_id: self.optional("v4").is_some(),
            can_skip_assignment: self.optional("v9").is_some(),
            reason: None,
        }
    }

    fn sync(&self) -> SyncRequest {
        SyncRequest {
            group: "g".into(),
            generation: self.number("gen", 1),
            member_id: self.text("member"),
            instance_id: self.optional("instance"),
            protocol_type: self.optional("type"),
            protocol: self.optional("protocol"),
            assignments: self
                .0
                .iter()
                .filter(|(key, _)| key.ends_with("-id"))
                .map(|(key, value)| ((*key).to_owned(), Bytes::copy_from_slice(value.as_bytes())))
                .collect(),
        }
    }
}

fn show(answer: &Answer) -> String {
    match answer {
        Answer::Join(Ok(joined)) => {
            let members: Vec<String> = joined
                .members
                .iter()
                .map(|m| format!("{}{}={}", m.member_id, instance(&m.instance_id), text(&m.metadata)))
                .collect();
            let skip = if joined.skip_assignment { " skip" } else { "" };
            format!(
                "joined as {} gen={} protocol={} leader={}{skip} members=[{}]",
                joined.member_id,
                joined.generation,
                joined.protocol,
                joined.leader,
                members.join(" ")
            )
        }
        Answer::Sync(Ok(synced)) => {
            format!("synced protocol={} assignment={}", synced.protocol, text(&synced.assignment))
        }
        Answer::Leave(Ok(left)) => {
            let each: Vec<String> =
                left.iter().map(|one| one.as_ref().map_or_else(error, |()| "ok".into())).collect();
            format!("left [{}]", each.join(" "))
        }
        Answer::Heartbeat(Ok(())) | Answer::Commit(Ok(())) => "ok".into(),
        Answer::Join(Err(e)) | Answer::Sync(Err(e)) | Answer::Leave(Err(e)) => error(e),
        Answer::Heartbeat(Err(e)) | Answer::Commit(Err(e)) => error(e),
    }
}

fn error(error: &GroupError) -> String {
    match error {
        GroupError::MemberIdRequired { member_id } => format!("MemberIdRequired({member_id})"),
        other => {
            let debug = format!("{other:?}");
            debug.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
        }
    }
}

fn instance(id: &Option<String>) -> String {
    id.as_ref().map(|id| format!("/{id}")).unwrap_or_default()
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
