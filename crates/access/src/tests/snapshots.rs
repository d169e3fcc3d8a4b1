//! Snapshots: what changes with them and what does not.

use std::net::IpAddr;
use std::sync::Arc;

use weir_model::access::{
    AccessRecords, DEFAULT_USER, NamespaceMeta, PasswordAlgorithm, PasswordHash, PermissionMeta, UserMeta,
};

use crate::*;

fn password(password: &str) -> PasswordHash {
    hash_password(PasswordAlgorithm::RabbitSha256, password.as_bytes(), &[0; SALT_BYTES]).unwrap()
}

fn user(name: &str) -> Arc<UserMeta> {
    Arc::new(UserMeta { name: name.into(), passwords: vec![password(name)], ..UserMeta::default() })
}

/// The records of the beginning, and a user `ann`, who may write to what begins with `a`.
fn with_ann() -> AccessRecords {
    let mut records = AccessRecords::initial();
    records.users.push(user("ann"));
    let permission = PermissionMeta { write: "^a".into(), ..PermissionMeta::everything("ann", "/") };
    records.permissions.push(Arc::new(permission));
    records
}

fn access(records: &AccessRecords) -> Access {
    Access::new(records, AccessOptions::default())
}

#[test]
fn authentication_is_required_once_anything_about_users_was_changed() {
    let initial = access(&AccessRecords::initial());
    assert!(!initial.requires_authentication());
    assert_eq!(initial.anonymous().unwrap().name(), DEFAULT_USER);

    let mut reset = AccessRecords::initial();
    let guest = UserMeta { passwords: vec![password("another")], ..UserMeta::initial() };
    reset.users = vec![Arc::new(guest)];
    for changed in [with_ann(), reset, AccessRecords::default()] {
        let changed = initial.updated(&changed);
        assert!(changed.requires_authentication());
        assert!(changed.anonymous().is_none());
    }
}

#[test]
fn loopback_is_told_from_other_addresses() {
    let peer = |address: &str| Peer::from(address.parse::<IpAddr>().unwrap());
    for loopback in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(peer(loopback), Peer::Loopback, "{loopback}");
    }
    for remote in ["10.0.0.1", "0.0.0.0", "::", "2001:db8::1", "::ffff:10.0.0.1"] {
        assert_eq!(peer(remote), Peer::Remote, "{remote}");
    }
}

#[test]
fn loopback_users_are_the_operators_choice() {
    let everywhere = Access::new(&AccessRecords::initial(), AccessOptions { loopback_users: [].into() });
    assert!(everywhere.authenticate("guest", b"guest", Peer::Remote).is_ok());
    let options = AccessOptions { loopback_users: ["ann".to_owned()].into() };
    let narrow = Access::new(&with_ann(), options).updated(&with_ann());
    let denied = narrow.authenticate("ann", b"ann", Peer::Remote).unwrap_err();
    assert_eq!(denied, Denied::LoopbackOnly("ann".into()));
    // The place is only held against somebody who knows the password.
    let denied = narrow.authenticate("ann", b"wrong", Peer::Remote).unwrap_err();
    assert_eq!(denied, Denied::WrongPassword("ann".into()));
}

#[test]
fn any_form_of_a_password_opens() {
    let mut records = AccessRecords::initial();
    let scram = hash_password(PasswordAlgorithm::ScramSha256, b"one", &[1; SALT_BYTES]).unwrap();
    let ann = UserMeta { name: "ann".into(), passwords: vec![scram, password("two")], ..UserMeta::default() };
    records.users.push(Arc::new(ann));
    let access = access(&records);
    for password in ["one", "two"] {
        assert!(access.authenticate("ann", password.as_bytes(), Peer::Remote).is_ok());
    }
    assert!(access.authenticate("ann", b"three", Peer::Remote).is_err());
}

#[test]
fn an_endless_user_name_is_not_repeated_in_full() {
    let denied = access(&with_ann()).authenticate(&"u".repeat(100_000), b"x", Peer::Loopback).unwrap_err();
    assert!(denied.to_string().len() < 400);
}

#[test]
fn a_pass_keeps_to_its_snapshot_until_it_is_renewed() {
    let before = access(&with_ann());
    let identity = before.authenticate("ann", b"ann", Peer::Remote).unwrap();
    let mut pass = identity.enter("/").unwrap();
    assert!(pass.may(Action::Write, "apples"));

    let mut records = with_ann();
    let stricter = PermissionMeta { write: "^b".into(), ..PermissionMeta::everything("ann", "/") };
    *records.permissions.last_mut().unwrap() = Arc::new(stricter);
    let after = before.updated(&records);
    assert!(pass.may(Action::Write, "apples"));
    pass.renew(&after).unwrap();
    assert!(!pass.may(Action::Write, "apples"));
    assert!(pass.may(Action::Write, "bread"));
    assert!(identity.may(Action::Write, "/", "apples"));
    assert!(identity.renewed(&after).unwrap().may(Action::Write, "/", "bread"));

    let gone = after.updated(&AccessRecords::initial());
    let forbidden = Forbidden::Namespace { namespace: "/".into(), user: "ann".into() };
    assert_eq!(pass.renew(&gone), Err(forbidden));
    assert_eq!(identity.renewed(&gone).unwrap_err(), Denied::UnknownUser("ann".into()));
}

#[test]
fn a_pass_remembers_grants_and_not_refusals() {
    let access = access(&with_ann());
    let mut pass = access.identify("ann", Peer::Remote).unwrap().enter("/").unwrap();
    for round in 0..3 {
        for number in 0..40 {
            assert!(pass.may(Action::Write, &format!("a{number}")), "round {round}");
            assert!(!pass.may(Action::Write, &format!("b{number}")), "round {round}");
            assert!(pass.may(Action::Read, &format!("b{number}")), "round {round}");
        }
    }
}

#[test]
fn a_permission_in_a_namespace_that_is_gone_gives_nothing() {
    let mut records = with_ann();
    records.permissions.push(Arc::new(PermissionMeta::everything("ann", "gone")));
    records.permissions.push(Arc::new(PermissionMeta::everything("nobody", "/")));
    let without = access(&records);
    assert!(!without.identify("ann", Peer::Loopback).unwrap().may_enter("gone"));
    records.namespaces.push(Arc::new(NamespaceMeta { name: "gone".into(), ..NamespaceMeta::default() }));
    let with = without.updated(&records);
    assert!(with.identify("ann", Peer::Loopback).unwrap().may_enter("gone"));
    assert_eq!(with.namespace("gone").unwrap().name, "gone");
    assert_eq!(with.user("ann").unwrap().name, "ann");
    assert!(with.user("nobody").is_none());
}

#[test]
fn no_operation_asks_for_nothing() {
    for operation in Operation::ALL {
        let requirement = operation.requirement();
        assert!(!requirement.needs.is_empty(), "{operation:?}");
        let subject = requirement.needs.iter().any(|need| need.party == Party::Subject);
        assert!(subject, "{operation:?}");
    }
}
