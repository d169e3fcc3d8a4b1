//! The protocol's error codes, what they are called and whether trying again can help.

use std::fmt;

/// A number in a response that says whether and how something failed. Codes that are not in the table pass
/// through unchanged, because a newer peer may know more of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

macro_rules! error_codes {
    ($( $code:literal $name:ident $retriable:ident $message:literal; )*) => {
        impl ErrorCode {
            $( #[doc = $message] pub const $name: ErrorCode = ErrorCode($code); )*

            /// Every code in the table.
            pub const ALL: &[ErrorCode] = &[$( ErrorCode::$name, )*];

            /// Kafka's name for the code; `None` if it is not in the table.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $( ErrorCode::$name => Some(stringify!($name)), )*
                    _ => None,
                }
            }

            /// A sentence to send along where there is nothing more precise to say.
            pub fn message(self) -> &'static str {
                match self {
                    $( ErrorCode::$name => $message, )*
                    _ => "An error that this version does not know.",
                }
            }

            /// Whether clients may send the same request again, perhaps after asking for new metadata.
            pub fn is_retriable(self) -> bool {
                match self {
                    $( ErrorCode::$name => error_codes!(@ $retriable), )*
                    _ => false,
                }
            }
        }
    };
    (@ retriable) => { true };
    (@ fatal) => { false };
}

error_codes! {
    -1  UNKNOWN_SERVER_ERROR fatal "The broker met an error that it did not expect.";
    0   NONE fatal "No error.";
    1   OFFSET_OUT_OF_RANGE fatal "The offset lies outside what the partition holds.";
    2   CORRUPT_MESSAGE retriable "The batch fails its checksum or is otherwise damaged.";
    3   UNKNOWN_TOPIC_OR_PARTITION retriable "There is no such topic or partition here.";
    4   INVALID_FETCH_SIZE fatal "The fetch size makes no sense.";
    5   LEADER_NOT_AVAILABLE retriable "The partition has no leader at the moment.";
    6   NOT_LEADER_OR_FOLLOWER retriable "This node does not lead the partition, or keeps no replica of it.";
    7   REQUEST_TIMED_OUT retriable "The request was not completed in time.";
    8   BROKER_NOT_AVAILABLE fatal "The broker is not available.";
    9   REPLICA_NOT_AVAILABLE retriable "The replica is not available.";
    10  MESSAGE_TOO_LARGE fatal "A batch is larger than the topic allows.";
    11  STALE_CONTROLLER_EPOCH fatal "The controller has moved to another node.";
    12  OFFSET_METADATA_TOO_LARGE fatal "The metadata of a committed offset is too long.";
    13  NETWORK_EXCEPTION retriable "The connection ended before there was a response.";
    14  COORDINATOR_LOAD_IN_PROGRESS retriable "The coordinator is still loading its state.";
    15  COORDINATOR_NOT_AVAILABLE retriable "There is no coordinator at the moment.";
    16  NOT_COORDINATOR retriable "This node is not the coordinator.";
    17  INVALID_TOPIC_EXCEPTION fatal "The topic's name is not allowed, or the topic does not permit this operation.";
    18  RECORD_LIST_TOO_LARGE fatal "The batch is larger than a segment.";
    19  NOT_ENOUGH_REPLICAS retriable "Fewer replicas are in sync than the topic demands; nothing was written.";
    20  NOT_ENOUGH_REPLICAS_AFTER_APPEND retriable "Written, but to fewer replicas than the topic demands.";
    21  INVALID_REQUIRED_ACKS fatal "acks must be -1, 0 or 1.";
    22  ILLEGAL_GENERATION fatal "The group is in another generation.";
    23  INCONSISTENT_GROUP_PROTOCOL fatal "The member has no protocol in common with the group, or none at all.";
    24  INVALID_GROUP_ID fatal "The group id is not allowed.";
    25  UNKNOWN_MEMBER_ID fatal "The group has no such member.";
    26  INVALID_SESSION_TIMEOUT fatal "The session timeout lies outside what the broker allows.";
    27  REBALANCE_IN_PROGRESS fatal "The group is rebalancing; the member has to join again.";
    28  INVALID_COMMIT_OFFSET_SIZE fatal "The commit is too large.";
    29  TOPIC_AUTHORIZATION_FAILED fatal "No permission for the topic.";
    30  GROUP_AUTHORIZATION_FAILED fatal "No permission for the group.";
    31  CLUSTER_AUTHORIZATION_FAILED fatal "No permission for the cluster.";
    32  INVALID_TIMESTAMP fatal "The timestamp of a record lies outside what the topic allows.";
    33  UNSUPPORTED_SASL_MECHANISM fatal "The broker does not offer this SASL mechanism.";
    34  ILLEGAL_SASL_STATE fatal "The request does not fit the state of authentication.";
    35  UNSUPPORTED_VERSION fatal "The broker does not serve this version of the API.";
    36  TOPIC_ALREADY_EXISTS fatal "A topic of this name exists already.";
    37  INVALID_PARTITIONS fatal "The number of partitions is not allowed.";
    38  INVALID_REPLICATION_FACTOR fatal "The replication factor is below 1 or above the number of nodes.";
    39  INVALID_REPLICA_ASSIGNMENT fatal "The assignment of replicas is not allowed.";
    40  INVALID_CONFIG fatal "A setting has a value that is not allowed.";
    41  NOT_CONTROLLER retriable "This node is not the controller.";
    42  INVALID_REQUEST fatal "The request contradicts itself or the protocol.";
    43  UNSUPPORTED_FOR_MESSAGE_FORMAT fatal "The format of the stored records does not support this.";
    44  POLICY_VIOLATION fatal "A policy of the broker forbids this.";
    45  OUT_OF_ORDER_SEQUENCE_NUMBER fatal "The producer's sequence number is not the next one.";
    46  DUPLICATE_SEQUENCE_NUMBER fatal "The producer's sequence number was used already.";
    47  INVALID_PRODUCER_EPOCH fatal "The producer uses an old epoch.";
    48  INVALID_TXN_STATE fatal "The transaction is in a state that does not allow this.";
    49  INVALID_PRODUCER_ID_MAPPING fatal "The transactional id belongs to another producer id.";
    50  INVALID_TRANSACTION_TIMEOUT fatal "The transaction timeout is larger than the broker allows.";
    51  CONCURRENT_TRANSACTIONS retriable "Another operation on the transaction is still under way.";
    52  TRANSACTION_COORDINATOR_FENCED fatal "The sender is no longer the producer's transaction coordinator.";
    53  TRANSACTIONAL_ID_AUTHORIZATION_FAILED fatal "No permission for the transactional id.";
    54  SECURITY_DISABLED fatal "Security features are switched off.";
    55  OPERATION_NOT_ATTEMPTED fatal "Not tried, because another part of the request failed.";
    56  KAFKA_STORAGE_ERROR retriable "The broker's disk failed or is full.";
    57  LOG_DIR_NOT_FOUND fatal "The broker has no such log directory.";
    58  SASL_AUTHENTICATION_FAILED fatal "The credentials are wrong.";
    59  UNKNOWN_PRODUCER_ID fatal "The broker no longer knows anything of this producer id.";
    60  REASSIGNMENT_IN_PROGRESS fatal "The partition is being reassigned.";
    61  DELEGATION_TOKEN_AUTH_DISABLED fatal "Delegation tokens are switched off.";
    62  DELEGATION_TOKEN_NOT_FOUND fatal "There is no such delegation token.";
    63  DELEGATION_TOKEN_OWNER_MISMATCH fatal "The principal neither owns nor may renew the token.";
    64  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED fatal "Delegation tokens cannot be asked for over this connection.";
    65  DELEGATION_TOKEN_AUTHORIZATION_FAILED fatal "No permission for the delegation token.";
    66  DELEGATION_TOKEN_EXPIRED fatal "The delegation token has expired.";
    67  INVALID_PRINCIPAL_TYPE fatal "The type of principal is not supported.";
    68  NON_EMPTY_GROUP fatal "The group still has members.";
    69  GROUP_ID_NOT_FOUND fatal "There is no such group.";
    70  FETCH_SESSION_ID_NOT_FOUND retriable "There is no such fetch session.";
    71  INVALID_FETCH_SESSION_EPOCH retriable "The fetch session's epoch is not the next one.";
    72  LISTENER_NOT_FOUND retriable "The leader has no listener like the one asked.";
    73  TOPIC_DELETION_DISABLED fatal "Topics cannot be deleted here.";
    74  FENCED_LEADER_EPOCH retriable "The request's leader epoch is older than the broker's.";
    75  UNKNOWN_LEADER_EPOCH retriable "The request's leader epoch is newer than the broker's.";
    76  UNSUPPORTED_COMPRESSION_TYPE fatal "The client's version does not support the partition's compression.";
    77  STALE_BROKER_EPOCH fatal "The broker's epoch has changed.";
    78  OFFSET_NOT_AVAILABLE retriable "After an election the leader does not know yet how far the log is committed.";
    79  MEMBER_ID_REQUIRED fatal "The member has to join again with the id it was just given.";
    80  PREFERRED_LEADER_NOT_AVAILABLE retriable "The preferred leader is not available.";
    81  GROUP_MAX_SIZE_REACHED fatal "The group has as many members as it may have.";
    82  FENCED_INSTANCE_ID fatal "Another member has taken over this instance id.";
    83  ELIGIBLE_LEADERS_NOT_AVAILABLE retriable "No replica that may lead is available.";
    84  ELECTION_NOT_NEEDED retriable "The partition needs no election.";
    85  NO_REASSIGNMENT_IN_PROGRESS fatal "The partition is not being reassigned.";
    86  GROUP_SUBSCRIBED_TO_TOPIC fatal "The group is still subscribed to the topic.";
    87  INVALID_RECORD fatal "A record breaks the topic's rules.";
    88  UNSTABLE_OFFSET_COMMIT retriable "An open transaction has yet to decide on offsets asked for.";
    89  THROTTLING_QUOTA_EXCEEDED retriable "A quota is used up.";
    90  PRODUCER_FENCED fatal "A newer producer with the same transactional id has taken over.";
    91  RESOURCE_NOT_FOUND fatal "There is no such resource.";
    92  DUPLICATE_RESOURCE fatal "The request names a resource twice.";
    93  UNACCEPTABLE_CREDENTIAL fatal "The credential does not meet the rules.";
    94  INCONSISTENT_VOTER_SET fatal "Sender or receiver is not one of the expected voters.";
    95  INVALID_UPDATE_VERSION fatal "The version of the update is not allowed.";
    96  FEATURE_UPDATE_FAILED fatal "The features could not be updated.";
    97  PRINCIPAL_DESERIALIZATION_FAILURE fatal "The principal of a forwarded request could not be read.";
    98  SNAPSHOT_NOT_FOUND fatal "There is no such snapshot.";
    99  POSITION_OUT_OF_RANGE fatal "The position lies outside the snapshot.";
    100 UNKNOWN_TOPIC_ID retriable "There is no topic with this id here.";
    101 DUPLICATE_BROKER_REGISTRATION fatal "The node id is in use.";
    102 BROKER_ID_NOT_REGISTERED fatal "The node id is not registered.";
    103 INCONSISTENT_TOPIC_ID retriable "The topic's id is not the one in the request.";
    104 INCONSISTENT_CLUSTER_ID fatal "The cluster's id is not the one in the request.";
    105 TRANSACTIONAL_ID_NOT_FOUND fatal "There is no such transactional id.";
    106 FETCH_SESSION_TOPIC_ID_ERROR retriable "The fetch session mixes topic ids and names.";
    107 INELIGIBLE_REPLICA fatal "A replica may not be counted as in sync.";
    108 NEW_LEADER_ELECTED fatal "The change was made, but the leader is now another.";
    109 OFFSET_MOVED_TO_TIERED_STORAGE fatal "The offset now lies in tiered storage.";
    110 FENCED_MEMBER_EPOCH fatal "The member has to give up its partitions and join again.";
    111 UNRELEASED_INSTANCE_ID fatal "Another member still uses this instance id.";
    112 UNSUPPORTED_ASSIGNOR fatal "The group does not support the assignor.";
    113 STALE_MEMBER_EPOCH fatal "The member's epoch is old; the next heartbeat brings the new one.";
    114 MISMATCHED_ENDPOINT_TYPE fatal "The request went to an endpoint of the wrong type.";
    115 UNSUPPORTED_ENDPOINT_TYPE fatal "The type of endpoint is not supported.";
    116 UNKNOWN_CONTROLLER_ID fatal "There is no such controller.";
    117 UNKNOWN_SUBSCRIPTION_ID fatal "The telemetry subscription is unknown or out of date.";
    118 TELEMETRY_TOO_LARGE fatal "The telemetry is larger than the broker accepts.";
    119 INVALID_REGISTRATION fatal "The registration was refused.";
    120 TRANSACTION_ABORTABLE fatal "The transaction failed; after aborting it the producer can go on.";
    121 INVALID_RECORD_STATE fatal "The record is not in a state that can be acknowledged.";
    122 SHARE_SESSION_NOT_FOUND retriable "There is no such share session.";
    123 INVALID_SHARE_SESSION_EPOCH retriable "The share session's epoch is not the next one.";
    124 FENCED_STATE_EPOCH fatal "The share group's state has another epoch.";
    125 INVALID_VOTER_KEY fatal "The voter's key is not that of the receiver.";
    126 DUPLICATE_VOTER fatal "The node is a voter already.";
    127 VOTER_NOT_FOUND fatal "The node is not a voter.";
    128 INVALID_REGULAR_EXPRESSION fatal "The regular expression is not valid.";
    129 REBOOTSTRAP_REQUIRED fatal "The client's metadata is out of date; it has to start again from its bootstrap servers.";
    130 STREAMS_INVALID_TOPOLOGY fatal "The topology is not valid.";
    131 STREAMS_INVALID_TOPOLOGY_EPOCH fatal "The topology's epoch is not valid.";
    132 STREAMS_TOPOLOGY_FENCED fatal "The topology's epoch is old.";
    133 SHARE_SESSION_LIMIT_REACHED retriable "There are as many share sessions as there may be.";
}

impl ErrorCode {
    /// Whether this is [`ErrorCode::NONE`].
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// `Ok` for [`ErrorCode::NONE`], so that `?` works on a response's code.
    pub fn ok(self) -> Result<(), ErrorCode> {
        if self.is_none() { Ok(()) } else { Err(self) }
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        Self(code)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}({})", self.0),
            None => write!(f, "ErrorCode({})", self.0),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({}): {}", self.0, self.message()),
            None => write!(f, "error code {}: {}", self.0, self.message()),
        }
    }
}

impl std::error::Error for ErrorCode {}
