//! Runs the transcripts in `tests/transcripts`: users and permissions in, decisions out.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use weir_access::*;
use weir_model::access::{
    AccessRecords, NamespaceMeta, PasswordAlgorithm, PermissionMeta, TopicPermissionMeta, UserMeta,
};
use weir_testing::transcript;

fn check(file: &Path) {
    let mut scene = Scene::new();
    transcript::check(file, |lines| lines.iter().map(|line| scene.run(line) + "\n").collect());
}

/// What is stored, and the snapshot of it.
struct Scene {
    records: AccessRecords,
    access: Access,
}

impl Scene {
    fn new() -> Scene {
        let records = AccessRecords::initial();
        Scene { access: Access::new(&records, AccessOptions::default()), records }
    }

    fn run(&mut self, line: &str) -> String {
        let words = Words::of(line);
        match words.text(0) {
            "namespace" => self.namespace(&words),
            "user" => self.user(&words),
            "delete-user" => self.delete_user(&words),
            "permission" => self.permission(&words),
            "topic-permission" => self.topic_permission(&words),
            "login" => self.login(&words),
            "anonymous" => self.access.anonymous().map_or("nobody".into(), |identity| identity.name().into()),
            "enter" => answer(self.identity(&words).enter(words.text(2)).map(|_| "entered")),
            "roles" => self.roles(&words),
            "sees" => yes(self.identity(&words).may_see(words.text(2))),
            "sends-as" => yes(self.identity(&words).may_send_as(words.text(2))),
            "may" => yes(self.identity(&words).may(action(words.text(3)), words.text(2), words.text(4))),
            "do" => self.operation(&words),
            "table" => self.table(&words),
            other => panic!("there is no command '{other}'"),
        }
    }

    /// Stores what is acceptable, as a front would.
    fn store<T, E: Display>(
        &mut self,
        checked: Result<T, E>,
        store: impl FnOnce(&mut AccessRecords, T),
    ) -> String {
        match checked {
            Err(refused) => refused.to_string(),
            Ok(value) => {
                store(&mut self.records, value);
                self.access = self.access.updated(&self.records);
                "stored".into()
            }
        }
    }

    fn namespace(&mut self, words: &Words<'_>) -> String {
        let meta = NamespaceMeta { name: words.text(1).into(), ..NamespaceMeta::default() };
        self.store(check_namespace(&meta).map(|()| meta), |records, meta| {
            records.namespaces.push(Arc::new(meta))
        })
    }

    fn user(&mut self, words: &Words<'_>) -> String {
        let password = words.named.get("password").map(|password| {
            hash_password(PasswordAlgorithm::RabbitSha256, password.as_bytes(), &[0; SALT_BYTES]).unwrap()
        });
        let tags = words.named.get("tags").copied().unwrap_or_default();
        let meta = UserMeta {
            name: words.text(1).into(),
            passwords: password.into_iter().collect(),
            tags: tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect(),
            ..UserMeta::default()
        };
        self.store(check_user(&meta).map(|()| meta), |records, meta| {
            records.users.retain(|user| user.name != meta.name);
            records.users.push(Arc::new(meta));
        })
    }

    fn delete_user(&mut self, words: &Words<'_>) -> String {
        let name = words.text(1);
        self.store(Ok::<_, String>(()), |records, ()| records.users.retain(|user| user.name != name))
    }

    fn permission(&mut self, words: &Words<'_>) -> String {
        let meta = PermissionMeta {
            user: words.text(1).into(),
            namespace: words.text(2).into(),
            configure: words.text(3).into(),
            write: words.text(4).into(),
            read: words.text(5).into(),
        };
        self.store(check_permission(&meta).map(|()| meta), |records, meta| {
            records.permissions.retain(|old| (&old.user, &old.namespace) != (&meta.user, &meta.namespace));
            records.permissions.push(Arc::new(meta));
        })
    }

    fn topic_permission(&mut self, words: &Words<'_>) -> String {
        let meta = TopicPermissionMeta {
            user: words.text(1).into(),
            namespace: words.text(2).into(),
            exchange: words.text(3).into(),
            write: words.text(4).into(),
            read: words.text(5).into(),
        };
        self.store(check_topic_permission(&meta).map(|()| meta), |records, meta| {
            records.topic_permissions.push(Arc::new(meta));
        })
    }

    fn login(&self, words: &Words<'_>) -> String {
        let peer = if words.plain.contains(&"remote") { Peer::Remote } else { Peer::Loopback };
        let identity = self.access.authenticate(words.text(1), words.text(2).as_bytes(), peer);
        answer(identity.map(|identity| format!("logged in as {}", identity.name())))
    }

    fn identity(&self, words: &Words<'_>) -> Identity {
        self.access.identify(words.text(1), Peer::Loopback).unwrap()
    }

    fn roles(&self, words: &Words<'_>) -> String {
        let identity = self.identity(words);
        let Management { may_use, policies, monitoring, administration } = identity.management();
        let roles = [
            (may_use, "management"),
            (policies, "policies"),
            (monitoring, "monitoring"),
            (administration, "administration"),
            (identity.may_impersonate(), "impersonation"),
        ];
        let roles: Vec<&str> = roles.into_iter().filter_map(|(held, role)| held.then_some(role)).collect();
        if roles.is_empty() { "none".into() } else { roles.join(" ") }
    }

    /// One operation, first with its names, then with its routing key as at a topic exchange.
    fn operation(&self, words: &Words<'_>) -> String {
        let mut pass = self.identity(words).enter(words.text(2)).unwrap();
        let operation = operation(words.text(3));
        let parties = Parties::two(words.text(4), words.plain.get(5).copied().unwrap_or_default());
        let mut checked = pass.check(operation, parties);
        if let Some(key) = words.named.get("key") {
            checked = checked.and_then(|()| pass.check_routing(operation, parties, key.as_bytes()));
        }
        answer(checked.map(|()| "allowed"))
    }

    /// Every operation on a subject and its counterpart.
    fn table(&self, words: &Words<'_>) -> String {
        let mut pass = self.identity(words).enter(words.text(2)).unwrap();
        let parties = Parties::two(words.text(3), words.text(4));
        let rows = OPERATIONS.iter().map(|(name, operation)| {
            format!("{name:<27} {}", answer(pass.check(*operation, parties).map(|()| "allowed")))
        });
        rows.collect::<Vec<_>>().join("\n")
    }
}

/// Operations by the names that transcripts give them.
const OPERATIONS: [(&str, Operation); 16] = [
    ("exchange.declare", Operation::ExchangeDeclare),
    ("exchange.declare-alternate", Operation::ExchangeDeclareAlternate),
    ("exchange.declare-passive", Operation::ExchangeDeclarePassive),
    ("exchange.delete", Operation::ExchangeDelete),
    ("exchange.bind", Operation::ExchangeBind),
    ("exchange.unbind", Operation::ExchangeUnbind),
    ("queue.declare", Operation::QueueDeclare),
    ("queue.declare-dead-letter", Operation::QueueDeclareDeadLetter),
    ("queue.declare-passive", Operation::QueueDeclarePassive),
    ("queue.bind", Operation::QueueBind),
    ("queue.unbind", Operation::QueueUnbind),
    ("queue.purge", Operation::QueuePurge),
    ("queue.delete", Operation::QueueDelete),
    ("basic.publish", Operation::BasicPublish),
    ("basic.consume", Operation::BasicConsume),
    ("basic.get", Operation::BasicGet),
];

fn operation(name: &str) -> Operation {
    let found = OPERATIONS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("there is no operation '{name}'")).1
}

fn action(name: &str) -> Action {
    match name {
        "configure" => Action::Configure,
        "write" => Action::Write,
        "read" => Action::Read,
        other => panic!("there is no action '{other}'"),
    }
}

fn answer<T: Display, E: Display>(result: Result<T, E>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

fn yes(holds: bool) -> String {
    if holds { "yes".into() } else { "no".into() }
}

/// The words of one line: those that name nothing in order, and `key=`, `password=` and `tags=` by name.
/// Two quotation marks are the empty word.
struct Words<'a> {
    line: &'a str,
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Words<'a> {
        let mut words = Words { line, plain: Vec::new(), named: BTreeMap::new() };
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some((name @ ("key" | "password" | "tags"), value)) => {
                    words.named.insert(name, value);
                }
                _ => words.plain.push(if word == "''" { "" } else { word }),
            }
        }
        words
    }

    fn text(&self, at: usize) -> &'a str {
        self.plain.get(at).unwrap_or_else(|| panic!("word {at} is missing in '{}'", self.line))
    }
}

weir_testing::transcripts! { check: logins operations permissions roles topics }
