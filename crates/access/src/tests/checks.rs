//! What may be stored.

use weir_model::access::{
    NamespaceMeta, PASSWORD_FORMS_MAX, PasswordAlgorithm, PasswordHash, PermissionMeta, TAGS_MAX,
    TopicPermissionMeta, UserMeta,
};

use crate::*;

fn words(checked: Result<(), Unacceptable>) -> String {
    checked.expect_err("it should be refused").to_string()
}

#[test]
fn what_a_cluster_begins_with_may_be_stored() {
    assert_eq!(check_namespace(&NamespaceMeta::initial()), Ok(()));
    assert_eq!(check_user(&UserMeta::initial()), Ok(()));
    assert_eq!(check_permission(&PermissionMeta::everything("guest", "/")), Ok(()));
}

#[test]
fn namespaces_have_bounds() {
    let namespace = |name: &str| NamespaceMeta { name: name.into(), ..NamespaceMeta::default() };
    assert_eq!(check_namespace(&namespace("a/b c-ü")), Ok(()));
    assert_eq!(
        words(check_namespace(&namespace(""))),
        "the namespace name is empty; give it at least one character"
    );
    assert_eq!(
        words(check_namespace(&namespace(&"n".repeat(256)))),
        "the namespace name is 256 bytes long; at most 255 are allowed"
    );
    assert_eq!(
        words(check_namespace(&namespace("a\nb"))),
        "the namespace name \"a\\nb\" contains the control character '\\n'; leave it out"
    );
    let described = NamespaceMeta { description: "d".repeat(1_025), ..namespace("a") };
    assert_eq!(
        words(check_namespace(&described)),
        "1025 bytes of description are too many; at most 1024 are allowed"
    );
    let typed = NamespaceMeta { default_queue_type: Some("t".repeat(256)), ..namespace("a") };
    assert_eq!(
        words(check_namespace(&typed)),
        "256 bytes of queue type are too many; at most 255 are allowed"
    );
}

#[test]
fn users_have_bounds() {
    let user = UserMeta { name: "ann".into(), ..UserMeta::default() };
    assert_eq!(check_user(&user), Ok(()));
    let nul = UserMeta { name: "a\0b".into(), ..user.clone() };
    assert!(words(check_user(&nul)).contains("control character"));
    let tagged = UserMeta { tags: vec!["t".into(); TAGS_MAX + 1], ..user.clone() };
    assert_eq!(words(check_user(&tagged)), "33 tags are too many; at most 32 are allowed");
    let listed = UserMeta { tags: vec!["monitoring,management".into()], ..user.clone() };
    assert!(words(check_user(&listed)).contains("contains a comma"));
    let hash = PasswordHash { algorithm: PasswordAlgorithm::RabbitMd5, bytes: vec![] };
    let opened = UserMeta { passwords: vec![hash; PASSWORD_FORMS_MAX + 1], ..user.clone() };
    assert_eq!(words(check_user(&opened)), "5 forms of the password are too many; at most 4 are allowed");
    let hash = PasswordHash { algorithm: PasswordAlgorithm::ScramSha256, bytes: vec![0; 80] };
    let broken = UserMeta { passwords: vec![hash], ..user };
    assert_eq!(
        words(check_user(&broken)),
        "the password hash is not one of weir_password_hashing_scram_sha256"
    );
}

#[test]
fn permissions_need_patterns_that_can_be_used() {
    let permission = PermissionMeta { read: "^(?!secret)".into(), ..PermissionMeta::everything("ann", "/") };
    assert_eq!(
        words(check_permission(&permission)),
        "the pattern '^(?!secret)' cannot be used: it looks ahead or behind, which is not supported; \
         name what is allowed instead of what is not"
    );
    let nobody = PermissionMeta::everything("", "/");
    assert!(words(check_permission(&nobody)).contains("user name is empty"));
    let topic = TopicPermissionMeta {
        user: "ann".into(),
        namespace: "/".into(),
        exchange: "amq.topic".into(),
        write: "^{username}\\.".into(),
        read: "(".into(),
    };
    assert!(words(check_topic_permission(&topic)).contains("unclosed group"));
    assert_eq!(check_topic_permission(&TopicPermissionMeta { read: String::new(), ..topic.clone() }), Ok(()));
    // Variables make a pattern longer; what counts is what was written.
    let name = "n".repeat(255);
    let long = TopicPermissionMeta { user: name, read: "{username}".repeat(5), ..topic };
    assert_eq!(check_topic_permission(&long), Ok(()));
}
