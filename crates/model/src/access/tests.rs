//! What is written is read again, and no bytes whatever make the readers panic.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn namespace() -> NamespaceMeta {
    NamespaceMeta {
        name: "shop".into(),
        description: "orders and what follows from them".into(),
        tags: vec!["production".into(), "eu".into()],
        default_queue_type: Some("quorum".into()),
        limits: NamespaceLimits { connections_max: Some(0), queues_max: Some(u32::MAX) },
    }
}

fn user() -> UserMeta {
    let passwords = PasswordAlgorithm::ALL.map(|algorithm| PasswordHash { algorithm, bytes: vec![7; 36] });
    UserMeta {
        name: "ann".into(),
        passwords: passwords.into(),
        tags: vec!["monitoring".into(), "night shift".into()],
        limits: UserLimits { connections_max: None, channels_max: Some(12) },
    }
}

fn permission() -> PermissionMeta {
    PermissionMeta {
        configure: String::new(),
        write: "^shop-".into(),
        ..PermissionMeta::everything("ann", "shop")
    }
}

fn topic_permission() -> TopicPermissionMeta {
    TopicPermissionMeta {
        user: "ann".into(),
        namespace: "shop".into(),
        exchange: "amq.topic".into(),
        write: "^{username}\\.".into(),
        read: String::new(),
    }
}

fn encoded(encode: impl FnOnce(&mut Writer)) -> Bytes {
    let mut out = Writer::new();
    encode(&mut out);
    out.finish()
}

/// Reads one value that must be all there is.
fn decoded<T>(
    bytes: Bytes,
    decode: impl FnOnce(&mut Reader) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut reader = Reader::new("a test", bytes);
    let value = decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

#[test]
fn everything_comes_back_as_it_went() {
    for meta in [namespace(), NamespaceMeta::initial()] {
        assert_eq!(decoded(encoded(|out| meta.encode(out)), NamespaceMeta::decode), Ok(meta));
    }
    for meta in [user(), UserMeta::initial(), UserMeta::default()] {
        assert_eq!(decoded(encoded(|out| meta.encode(out)), UserMeta::decode), Ok(meta));
    }
    let meta = permission();
    assert_eq!(decoded(encoded(|out| meta.encode(out)), PermissionMeta::decode), Ok(meta));
    let meta = topic_permission();
    assert_eq!(decoded(encoded(|out| meta.encode(out)), TopicPermissionMeta::decode), Ok(meta));
}

fn changes() -> Vec<AccessChange> {
    let (user_name, namespace_name) = ("ann".to_owned(), "shop".to_owned());
    let delete_topic = |exchange: Option<&str>| AccessChange::DeleteTopicPermission {
        user: user_name.clone(),
        namespace: namespace_name.clone(),
        exchange: exchange.map(str::to_owned),
    };
    vec![
        AccessChange::PutNamespace { namespace: namespace(), new: true },
        AccessChange::DeleteNamespace { name: namespace_name.clone() },
        AccessChange::PutUser { user: user(), new: false },
        AccessChange::DeleteUser { name: user_name.clone() },
        AccessChange::PutPermission { permission: permission() },
        AccessChange::DeletePermission { user: user_name.clone(), namespace: namespace_name.clone() },
        AccessChange::PutTopicPermission { permission: topic_permission() },
        delete_topic(Some("amq.topic")),
        delete_topic(None),
    ]
}

#[test]
fn every_change_comes_back_as_it_went() {
    for change in changes() {
        assert_eq!(decoded(encoded(|out| change.encode(out)), AccessChange::decode), Ok(change));
    }
    assert!(decoded(encoded(|out| out.u8(99)), AccessChange::decode).is_err());
}

#[test]
fn the_encoding_stays_as_it_is() {
    let meta = UserMeta {
        name: "u".into(),
        passwords: vec![PasswordHash { algorithm: PasswordAlgorithm::ScramSha256, bytes: vec![9] }],
        tags: vec!["t".into()],
        limits: UserLimits { connections_max: Some(5), channels_max: None },
    };
    let mut expected = vec![1, 0, 0, 0, b'u', 1, 0, 0, 0, 16, 1, 0, 0, 0, 9, 1, 0, 0, 0, 1, 0, 0, 0, b't'];
    expected.extend(5i64.to_le_bytes());
    expected.extend((-1i64).to_le_bytes());
    assert_eq!(encoded(|out| meta.encode(out)), expected);
}

#[test]
fn an_unknown_algorithm_and_a_senseless_limit_are_errors() {
    let unknown = encoded(|out| {
        out.u8(200);
        out.bytes(b"hash");
    });
    assert!(decoded(unknown, PasswordHash::decode).is_err());
    for limit in [-2, i64::from(u32::MAX) + 1] {
        assert!(decoded(encoded(|out| out.i64(limit)), decode_limit).is_err());
    }
}

#[test]
fn algorithms_are_told_apart_by_name_and_number() {
    for algorithm in PasswordAlgorithm::ALL {
        assert_eq!(PasswordAlgorithm::from_name(algorithm.name()), Some(algorithm));
        let hash = PasswordHash { algorithm, bytes: vec![1, 2] };
        assert_eq!(decoded(encoded(|out| hash.encode(out)), PasswordHash::decode), Ok(hash));
    }
    assert_eq!(PasswordAlgorithm::from_name("rabbit_password_hashing_rot13"), None);
}

#[test]
fn a_hash_is_not_shown() {
    let shown = format!("{:?}", UserMeta::initial());
    assert!(shown.contains("RabbitSha256") && !shown.contains("0x77") && !shown.contains("119"), "{shown}");
}

proptest! {
    #[test]
    fn any_damage_is_an_error_or_another_value_and_never_a_panic(
        at in 0usize..300, byte in any::<u8>(), cut in 0usize..300,
    ) {
        let damaged = |bytes: Bytes| {
            let mut bytes = bytes.to_vec();
            if at < bytes.len() { bytes[at] = byte; }
            bytes.truncate(cut);
            Bytes::from(bytes)
        };
        for change in changes() {
            let _ = decoded(damaged(encoded(|out| change.encode(out))), AccessChange::decode);
        }
        let _ = decoded(damaged(encoded(|out| namespace().encode(out))), NamespaceMeta::decode);
        let _ = decoded(damaged(encoded(|out| user().encode(out))), UserMeta::decode);
        let _ = decoded(damaged(encoded(|out| permission().encode(out))), PermissionMeta::decode);
        let _ = decoded(damaged(encoded(|out| topic_permission().encode(out))), TopicPermissionMeta::decode);
    }
}
