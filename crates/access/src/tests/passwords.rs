//! Stored passwords: the examples of the specifications, what others made, and any bytes.

use proptest::prelude::*;
use weir_model::access::{PasswordAlgorithm, PasswordHash, UserMeta};

use crate::*;

fn salt(hex: [u8; 4]) -> [u8; SALT_BYTES] {
    let mut salt = [0xee; SALT_BYTES];
    salt[..4].copy_from_slice(&hex);
    salt
}

fn import(algorithm: PasswordAlgorithm, hash: &str) -> PasswordHash {
    import_password(algorithm.name(), hash).unwrap().unwrap()
}

/// The worked example of RabbitMQ's guide to passwords, and the same in its other forms.
#[test]
fn rabbitmq_hashes_are_the_documented_ones() {
    let check = |algorithm, expected: &str| {
        let hash = hash_password(algorithm, b"test12", &salt([0x90, 0x8d, 0xc6, 0x0a])).unwrap();
        assert_eq!(export_password(&hash), expected);
        assert_eq!(import(algorithm, expected), hash);
        assert!(verify_password(&hash, b"test12"));
        assert!(!verify_password(&hash, b"test13"));
    };
    check(PasswordAlgorithm::RabbitSha256, "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR");
    check(
        PasswordAlgorithm::RabbitSha512,
        "kI3GChuNuIYf8lRbCCxZjgjKwsY19ns6+uFO0zcXRBGA/XGJPYD8OWMy7EB8TaOmAzjP2azv84GbINYwX2cDWb4DHnc=",
    );
}

/// The example that RabbitMQ's makers gave when the hash was still MD5.
#[test]
fn old_hashes_are_verified_and_not_made() {
    let hash = import(PasswordAlgorithm::RabbitMd5, "ytUIm8s3AnKsXQjptplKFytfVxI=");
    assert!(verify_password(&hash, b"simon"));
    assert!(!verify_password(&hash, b"Simon"));
    let made = hash_password(PasswordAlgorithm::RabbitMd5, b"simon", &[0; SALT_BYTES]);
    assert_eq!(made, Err(PasswordError::Outdated(PasswordAlgorithm::RabbitMd5)));
}

/// The exchange in RFC 7677, section 3, as a server checks it with what it stores.
#[test]
fn scram_keys_are_those_of_the_specification() {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let credential = ScramCredential::derive(ScramHash::Sha256, b"pencil", &salt, 4_096);
    let messages = b"n=user,r=rOprNGfwEbeRWgbNEkqO,\
        r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
        c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();

    let answer = credential.check_proof(messages, &proof).map(|signature| STANDARD.encode(signature));
    assert_eq!(answer.as_deref(), Some("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
    for wrong in [&proof[1..], b"", &[0; 32]] {
        assert_eq!(credential.check_proof(messages, wrong), None);
    }
    assert_eq!(credential.check_proof(b"other messages", &proof), None);
}

#[test]
fn a_stored_scram_credential_can_be_had_back() {
    let hash = hash_password(NEW_PASSWORD_ALGORITHM, b"secret", &[7; SALT_BYTES]).unwrap();
    let credential = ScramCredential::of(&hash).unwrap();
    assert_eq!((credential.iterations, credential.salt.as_slice()), (SCRAM_ITERATIONS, &[7; SALT_BYTES][..]));
    assert_eq!(import(NEW_PASSWORD_ALGORITHM, &export_password(&hash)), hash);
    let shown = format!("{credential:?}");
    assert_eq!(shown, "ScramCredential { hash: Sha256, iterations: 16384, .. }");
}

#[test]
fn somebody_who_is_not_there_is_shown_the_same_again_and_has_no_password() {
    for hash in [ScramHash::Sha256, ScramHash::Sha512] {
        let decoy = |user, secret| ScramCredential::decoy(hash, user, secret);
        assert_eq!(decoy("eve", b"secret"), decoy("eve", b"secret"));
        assert_ne!(decoy("eve", b"secret").salt, decoy("eva", b"secret").salt);
        assert_ne!(decoy("eve", b"secret").salt, decoy("eve", b"other").salt);
        assert!(!decoy("eve", b"secret").opens_with(b"eve"));
    }
}

#[test]
fn a_log_in_is_remembered_until_its_user_changes() {
    use std::sync::Arc;
    use weir_model::access::AccessRecords;

    let access = Access::new(&AccessRecords::initial(), AccessOptions::default());
    let mut logins = Logins::new([5; 32]);
    let guest = access.authenticate("guest", b"guest", Peer::Loopback).unwrap();
    assert!(!logins.knows(&access, "guest", b"guest"));
    logins.note(&guest, b"guest");
    assert!(logins.knows(&access, "guest", b"guest"));
    assert!(!logins.knows(&access, "guest", b"other") && !logins.knows(&access, "gues", b"tguest"));
    let mut records = AccessRecords::initial();
    assert!(!logins.knows(&access.updated(&records), "guest", b"guest"));
    records.users = vec![Arc::clone(access.user("guest").unwrap())];
    assert!(logins.knows(&access.updated(&records), "guest", b"guest"));
    for number in 0..2_000u32 {
        logins.note(&guest, &number.to_le_bytes());
    }
    assert!(!logins.knows(&access, "guest", b"guest"));
    assert!(logins.knows(&access, "guest", &1_999u32.to_le_bytes()));
}

#[test]
fn a_scram_credential_out_of_bounds_opens_nothing_and_costs_nothing() {
    let salt = [7; SALT_BYTES];
    let bytes = |iterations: u32, salt: &[u8]| [&iterations.to_le_bytes()[..], &[1; 64][..], salt].concat();
    for bytes in
        [bytes(0, &salt), bytes(u32::MAX, &salt), bytes(16_384, b"short"), bytes(16_384, &[0; 65]), vec![]]
    {
        let hash = PasswordHash { algorithm: PasswordAlgorithm::ScramSha256, bytes };
        assert_eq!(ScramCredential::of(&hash), None);
        assert!(!verify_password(&hash, b"secret"));
        let imported = import_password(hash.algorithm.name(), &export_password(&hash));
        assert!(matches!(imported, Ok(None) | Err(PasswordError::Malformed(_))));
    }
}

#[test]
fn blank_and_endless_passwords_are_nobodys() {
    for algorithm in [PasswordAlgorithm::RabbitSha256, PasswordAlgorithm::ScramSha256] {
        assert_eq!(hash_password(algorithm, b"", &[0; SALT_BYTES]), Err(PasswordError::Blank));
        let longest = vec![b'x'; PASSWORD_BYTES_MAX];
        let hash = hash_password(algorithm, &longest, &[0; SALT_BYTES]).unwrap();
        assert!(verify_password(&hash, &longest));
        let longer = vec![b'x'; PASSWORD_BYTES_MAX + 1];
        assert_eq!(
            hash_password(algorithm, &longer, &[0; SALT_BYTES]),
            Err(PasswordError::TooLong { bytes: PASSWORD_BYTES_MAX + 1, max: PASSWORD_BYTES_MAX })
        );
        assert!(!verify_password(&hash, &longer));
    }
    // SHA-256 of the salt alone, which is what a blank password would hash to.
    let blank = import(PasswordAlgorithm::RabbitSha256, "AAAAAN8/YZgEqS/bQFcZLcQ910jqd4rcUrxJjOgFJMAUuBEZ");
    assert!(!verify_password(&blank, b""));
}

#[test]
fn definitions_that_make_no_sense_are_refused_by_name() {
    assert_eq!(import_password("rabbit_password_hashing_sha256", ""), Ok(None));
    assert_eq!(
        import_password("my_plugin", "AAAA").unwrap_err().to_string(),
        "the hashing algorithm 'my_plugin' is not known; set the user's password anew"
    );
    let not_base64 = import_password("rabbit_password_hashing_sha256", "not base64!");
    assert_eq!(not_base64, Err(PasswordError::NotBase64));
    let endless = "AAAA".repeat(100);
    let endless = import_password("rabbit_password_hashing_sha256", &endless);
    assert_eq!(endless, Err(PasswordError::Malformed(PasswordAlgorithm::RabbitSha256)));
    // One that MD5 made, said to be SHA-256: taken over, and nobody's.
    let other = import(PasswordAlgorithm::RabbitSha256, "ytUIm8s3AnKsXQjptplKFytfVxI=");
    assert!(!verify_password(&other, b"simon"));
}

#[test]
fn the_portable_form_is_one_that_rabbitmq_reads() {
    let form = |algorithm| PasswordHash { algorithm, bytes: vec![1] };
    let scram = form(PasswordAlgorithm::ScramSha256);
    let rabbit = form(PasswordAlgorithm::RabbitSha512);
    assert_eq!(portable_form(&[scram.clone(), rabbit.clone()]), Some(&rabbit));
    assert_eq!(portable_form(std::slice::from_ref(&scram)), Some(&scram));
    assert_eq!(portable_form(&[]), None);
}

#[test]
fn the_default_user_begins_with_its_name_as_password() {
    assert!(verify_password(&UserMeta::initial().passwords[0], b"guest"));
}

fn creatable() -> impl Strategy<Value = PasswordAlgorithm> {
    prop_oneof![
        Just(PasswordAlgorithm::RabbitSha256),
        Just(PasswordAlgorithm::RabbitSha512),
        Just(PasswordAlgorithm::ScramSha256),
        Just(PasswordAlgorithm::ScramSha512),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_hashed_verifies_and_nothing_else_does(
        algorithm in creatable(),
        password in proptest::collection::vec(any::<u8>(), 1..80),
        other in proptest::collection::vec(any::<u8>(), 0..80),
        salt in any::<[u8; SALT_BYTES]>(),
    ) {
        let hash = hash_password(algorithm, &password, &salt).unwrap();
        prop_assert!(verify_password(&hash, &password));
        prop_assert_eq!(verify_password(&hash, &other), other == password);
        prop_assert_eq!(import(algorithm, &export_password(&hash)), hash);
    }
}

proptest! {
    #[test]
    fn any_bytes_as_a_stored_password_open_nothing(
        algorithm in proptest::sample::select(PasswordAlgorithm::ALL.to_vec()),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        password in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let stored = PasswordHash { algorithm, bytes };
        prop_assert!(!verify_password(&stored, &password));
    }

    #[test]
    fn any_words_as_a_definition_are_read_or_refused(algorithm in ".{0,40}", hash in ".{0,400}") {
        let _ = import_password(&algorithm, &hash);
        for algorithm in PasswordAlgorithm::ALL {
            let _ = import_password(algorithm.name(), &hash);
        }
    }
}
