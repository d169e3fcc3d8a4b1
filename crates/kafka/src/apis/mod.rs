//! Every API that is served. One table drives both what requests are sent to and what clients are told:
//! what is not in it is neither served nor advertised.

use bytes::Bytes;
use weir_kafka_wire::ApiKey;

use crate::pipeline::{Answer, Begun, Lane};
use crate::sasl;
use crate::session::{Call, run};

mod api_versions;
mod cluster;
mod configs;
mod fetch;
pub(crate) mod gaps;
mod group_offsets;
mod groups;
mod log_dirs;
mod log_offsets;
mod metadata;
mod produce;
mod producers;
mod topics;

/// One API that is served, in all the versions that the codec has.
pub(crate) struct Api {
    /// Its key.
    pub(crate) key: ApiKey,
    /// Which requests it may run beside.
    pub(crate) lane: Lane,
    /// Whether it is also for clients that have not said who they are.
    pub(crate) for_anybody: bool,
    /// Begins a request; the bytes are its body.
    pub(crate) begin: fn(Call, Bytes) -> Begun,
    /// Answers a version that is not served, where a layout exists that the client can read.
    pub(crate) refuse_version: Option<fn(&Call, Bytes) -> Option<Answer>>,
}

/// An API whose requests run alone.
macro_rules! alone {
    ($key:ident, $handler:path) => {
        Api {
            key: ApiKey::$key,
            lane: Lane::Alone,
            for_anybody: false,
            begin: |call, body| run(call, body, $handler),
            refuse_version: None,
        }
    };
}

/// The table, by rising key.
pub(crate) const TABLE: &[Api] = &[
    Api {
        key: ApiKey::Produce,
        lane: Lane::Produce,
        for_anybody: false,
        begin: produce::begin,
        refuse_version: Some(produce::refuse_version),
    },
    Api {
        key: ApiKey::Fetch,
        lane: Lane::Wait,
        for_anybody: false,
        begin: fetch::begin,
        refuse_version: None,
    },
    alone!(ListOffsets, log_offsets::list),
    alone!(Metadata, metadata::answer),
    alone!(OffsetCommit, group_offsets::commit),
    alone!(OffsetFetch, group_offsets::fetch),
    alone!(FindCoordinator, groups::find_coordinator),
    alone!(JoinGroup, groups::join),
    alone!(Heartbeat, groups::heartbeat),
    alone!(LeaveGroup, groups::leave),
    alone!(SyncGroup, groups::sync),
    alone!(DescribeGroups, groups::describe),
    alone!(ListGroups, groups::list),
    Api {
        key: ApiKey::SaslHandshake,
        lane: Lane::Alone,
        for_anybody: true,
        begin: sasl::handshake,
        refuse_version: None,
    },
    Api {
        key: ApiKey::ApiVersions,
        lane: Lane::Alone,
        for_anybody: true,
        begin: |call, body| run(call, body, api_versions::answer),
        refuse_version: Some(api_versions::refuse_version),
    },
    alone!(CreateTopics, topics::create),
    alone!(DeleteTopics, topics::delete),
    alone!(DeleteRecords, log_offsets::delete_records),
    alone!(InitProducerId, producers::init),
    alone!(OffsetForLeaderEpoch, log_offsets::for_leader_epoch),
    alone!(DescribeConfigs, configs::describe),
    alone!(AlterConfigs, configs::alter),
    alone!(DescribeLogDirs, log_dirs::describe),
    Api {
        key: ApiKey::SaslAuthenticate,
        lane: Lane::Alone,
        for_anybody: true,
        begin: sasl::authenticate,
        refuse_version: None,
    },
    alone!(CreatePartitions, topics::create_partitions),
    alone!(DeleteGroups, groups::delete),
    alone!(IncrementalAlterConfigs, configs::alter_incrementally),
    alone!(OffsetDelete, group_offsets::delete),
    alone!(DescribeCluster, cluster::describe),
];

/// The entry of an API with its place in the table.
pub(crate) fn find(key: i16) -> Option<(usize, &'static Api)> {
    TABLE.iter().enumerate().find(|(_, api)| api.key as i16 == key)
}

#[cfg(test)]
mod tests;
