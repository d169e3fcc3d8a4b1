//! The APIs: keys, versions, and the messages that belong to them.

use crate::error::{DecodeError, EncodeError, Why};
use crate::header::{self, RequestHeader};
use crate::messages::*;
use crate::reader::Reader;
use crate::wire::{Version, Wire};
use crate::writer::{Frame, Writer};
use bytes::Bytes;
use std::fmt;
use std::ops::RangeInclusive;

/// Room for a frame's own bytes that is made at once; a larger frame grows.
const FRAME_BYTES_EXPECTED: usize = 256;

/// A request or a response.
pub trait Message: Wire + Clone + Default + Send + 'static {
    /// The API it belongs to.
    const API: ApiKey;
    /// Its name.
    const NAME: &'static str;

    /// Reads a body, which must end where the bytes end.
    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let message = Self::decode_from(version, &mut reader)?;
        reader.end(Self::NAME)?;
        Ok(message)
    }

    /// Reads a body and leaves what follows it.
    fn decode_from(version: i16, reader: &mut Reader) -> Result<Self, DecodeError> {
        match Self::API.version(version) {
            Some(version) => Self::read(reader, version),
            None => Err(DecodeError { what: Self::NAME, ..reader.error(Why::UnsupportedVersion(version)) }),
        }
    }

    /// Writes the body behind what is there.
    fn encode_into(&self, version: i16, writer: &mut Writer) {
        match Self::API.version(version) {
            Some(version) => self.write(writer, version),
            None => writer.fail(EncodeError::UnsupportedVersion { api: Self::API.name(), version }),
        }
    }

    /// The body alone, in chunks that follow each other.
    fn encode(&self, version: i16) -> Result<Vec<Bytes>, EncodeError> {
        let mut writer = Writer::with_capacity(FRAME_BYTES_EXPECTED);
        self.encode_into(version, &mut writer);
        writer.finish()
    }

    /// The frame of a response with this body: length, header, body.
    fn encode_response(&self, version: i16, correlation_id: i32) -> Result<Frame, EncodeError> {
        let mut writer = Writer::frame(FRAME_BYTES_EXPECTED);
        header::write_response_header(&mut writer, Self::API, version, correlation_id);
        self.encode_into(version, &mut writer);
        writer.finish_frame()
    }
}

/// A request, with the response that answers it.
pub trait RequestMessage: Message + Into<Request> {
    /// The response that answers it.
    type Response: Message + Into<Response>;

    /// The frame of a request with this body: length, header, body.
    fn encode_request(
        &self,
        version: i16,
        correlation_id: i32,
        client_id: Option<&crate::KafkaStr>,
    ) -> Result<Frame, EncodeError> {
        let mut writer = Writer::frame(FRAME_BYTES_EXPECTED);
        let api_key = Self::API as i16;
        RequestHeader { api_key, api_version: version, correlation_id, client_id: client_id.cloned() }
            .write(&mut writer);
        self.encode_into(version, &mut writer);
        writer.finish_frame()
    }

    /// Reads the frame (without its length) of the response to a request of this version: correlation id, body.
    fn decode_response(version: i16, frame: Bytes) -> Result<(i32, Self::Response), DecodeError> {
        let mut reader = Reader::new(frame);
        let correlation_id = header::read_response_header(&mut reader, Self::API, version)?;
        let response = Self::Response::decode_from(version, &mut reader)?;
        reader.end(Self::Response::NAME)?;
        Ok((correlation_id, response))
    }
}

macro_rules! apis {
    ($( $api:ident = $key:literal: $min:literal - $max:literal, flexible $flexible:expr,
        $module:ident :: $request:ident / $response:ident; )*) => {
        /// An API by its name; the discriminant is its key on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $(
                #[doc = concat!("Key ", stringify!($key), ", versions ", stringify!($min), " to ", stringify!($max), ".")]
                $api = $key,
            )*
        }

        impl ApiKey {
            /// Every API, by rising key.
            pub const ALL: &[ApiKey] = &[$( ApiKey::$api, )*];

            /// The API with this key.
            pub fn from_code(key: i16) -> Option<Self> {
                match key {
                    $( $key => Some(ApiKey::$api), )*
                    _ => None,
                }
            }

            /// Kafka's name for it.
            pub fn name(self) -> &'static str {
                match self {
                    $( ApiKey::$api => stringify!($api), )*
                }
            }

            /// The versions that can be read and written.
            pub fn versions(self) -> RangeInclusive<i16> {
                match self {
                    $( ApiKey::$api => $min..=$max, )*
                }
            }

            /// The first version with varint lengths and tagged fields, `i16::MAX` if there is none.
            pub fn first_flexible_version(self) -> i16 {
                match self {
                    $( ApiKey::$api => $flexible, )*
                }
            }
        }

        $(
            impl Message for $module::$request {
                const API: ApiKey = ApiKey::$api;
                const NAME: &'static str = stringify!($request);
            }

            impl Message for $module::$response {
                const API: ApiKey = ApiKey::$api;
                const NAME: &'static str = stringify!($response);
            }

            impl RequestMessage for $module::$request {
                type Response = $module::$response;
            }

            impl From<$module::$request> for Request {
                fn from(request: $module::$request) -> Self {
                    Request::$api(request)
                }
            }

            impl From<$module::$response> for Response {
                fn from(response: $module::$response) -> Self {
                    Response::$api(response)
                }
            }
        )*

        /// A request of any API.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Request {
            $( $api($module::$request), )*
        }

        impl Request {
            /// A random one of this API and version, which must be one that it has.
            #[cfg(any(test, feature = "generate"))]
            pub fn generate(api: ApiKey, version: i16, source: &mut crate::Source) -> Self {
                match api {
                    $( ApiKey::$api => {
                        let flexible = version >= api.first_flexible_version();
                        Request::$api(Wire::generate(source, Version { number: version, flexible }))
                    } )*
                }
            }

            /// The API it belongs to.
            pub fn api(&self) -> ApiKey {
                match self {
                    $( Request::$api(_) => ApiKey::$api, )*
                }
            }

            /// Reads a body, which must end where the bytes end.
            pub fn decode(api_key: i16, version: i16, body: Bytes) -> Result<Self, DecodeError> {
                match ApiKey::from_code(api_key) {
                    $( Some(ApiKey::$api) => Message::decode(version, body).map(Request::$api), )*
                    None => Err(DecodeError { what: "Request", at: 0, why: Why::UnknownApi(api_key) }),
                }
            }

            /// The frame of the request: length, header, body.
            pub fn encode(
                &self,
                version: i16,
                correlation_id: i32,
                client_id: Option<&crate::KafkaStr>,
            ) -> Result<Frame, EncodeError> {
                match self {
                    $( Request::$api(request) => request.encode_request(version, correlation_id, client_id), )*
                }
            }
        }

        /// A response of any API.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Response {
            $( $api($module::$response), )*
        }

        impl Response {
            /// A random one of this API and version, which must be one that it has.
            #[cfg(any(test, feature = "generate"))]
            pub fn generate(api: ApiKey, version: i16, source: &mut crate::Source) -> Self {
                match api {
                    $( ApiKey::$api => {
                        let flexible = version >= api.first_flexible_version();
                        Response::$api(Wire::generate(source, Version { number: version, flexible }))
                    } )*
                }
            }

            /// The API it belongs to.
            pub fn api(&self) -> ApiKey {
                match self {
                    $( Response::$api(_) => ApiKey::$api, )*
                }
            }

            /// Reads the frame (without its length) of the response to a request of this API and version:
            /// correlation id, body.
            pub fn decode(api_key: i16, version: i16, frame: Bytes) -> Result<(i32, Self), DecodeError> {
                match ApiKey::from_code(api_key) {
                    $(
                        Some(ApiKey::$api) => {
                            let (correlation_id, body) = $module::$request::decode_response(version, frame)?;
                            Ok((correlation_id, Response::$api(body)))
                        }
                    )*
                    None => Err(DecodeError { what: "Response", at: 0, why: Why::UnknownApi(api_key) }),
                }
            }

            /// The frame of the response: length, header, body.
            pub fn encode(&self, version: i16, correlation_id: i32) -> Result<Frame, EncodeError> {
                match self {
                    $( Response::$api(response) => response.encode_response(version, correlation_id), )*
                }
            }
        }
    };
}

/// Stands for "no flexible version" in the table below.
const NEVER: i16 = i16::MAX;

apis! {
    Produce = 0: 3-13, flexible 9, produce::ProduceRequest / ProduceResponse;
    Fetch = 1: 4-18, flexible 12, fetch::FetchRequest / FetchResponse;
    ListOffsets = 2: 1-11, flexible 6, list_offsets::ListOffsetsRequest / ListOffsetsResponse;
    Metadata = 3: 0-13, flexible 9, metadata::MetadataRequest / MetadataResponse;
    OffsetCommit = 8: 2-10, flexible 8, offset_commit::OffsetCommitRequest / OffsetCommitResponse;
    OffsetFetch = 9: 1-10, flexible 6, offset_fetch::OffsetFetchRequest / OffsetFetchResponse;
    FindCoordinator = 10: 0-6, flexible 3, find_coordinator::FindCoordinatorRequest / FindCoordinatorResponse;
    JoinGroup = 11: 0-9, flexible 6, join_group::JoinGroupRequest / JoinGroupResponse;
    Heartbeat = 12: 0-4, flexible 4, heartbeat::HeartbeatRequest / HeartbeatResponse;
    LeaveGroup = 13: 0-5, flexible 4, leave_group::LeaveGroupRequest / LeaveGroupResponse;
    SyncGroup = 14: 0-5, flexible 4, sync_group::SyncGroupRequest / SyncGroupResponse;
    DescribeGroups = 15: 0-6, flexible 5, describe_groups::DescribeGroupsRequest / DescribeGroupsResponse;
    ListGroups = 16: 0-5, flexible 3, list_groups::ListGroupsRequest / ListGroupsResponse;
    SaslHandshake = 17: 0-1, flexible NEVER, sasl_handshake::SaslHandshakeRequest / SaslHandshakeResponse;
    ApiVersions = 18: 0-4, flexible 3, api_versions::ApiVersionsRequest / ApiVersionsResponse;
    CreateTopics = 19: 2-7, flexible 5, create_topics::CreateTopicsRequest / CreateTopicsResponse;
    DeleteTopics = 20: 1-6, flexible 4, delete_topics::DeleteTopicsRequest / DeleteTopicsResponse;
    DeleteRecords = 21: 0-2, flexible 2, delete_records::DeleteRecordsRequest / DeleteRecordsResponse;
    InitProducerId = 22: 0-5, flexible 2, init_producer_id::InitProducerIdRequest / InitProducerIdResponse;
    OffsetForLeaderEpoch = 23: 2-4, flexible 4,
        offset_for_leader_epoch::OffsetForLeaderEpochRequest / OffsetForLeaderEpochResponse;
    DescribeConfigs = 32: 1-4, flexible 4, describe_configs::DescribeConfigsRequest / DescribeConfigsResponse;
    AlterConfigs = 33: 0-2, flexible 2, alter_configs::AlterConfigsRequest / AlterConfigsResponse;
    DescribeLogDirs = 35: 1-4, flexible 2, describe_log_dirs::DescribeLogDirsRequest / DescribeLogDirsResponse;
    SaslAuthenticate = 36: 0-2, flexible 2, sasl_authenticate::SaslAuthenticateRequest / SaslAuthenticateResponse;
    CreatePartitions = 37: 0-3, flexible 2, create_partitions::CreatePartitionsRequest / CreatePartitionsResponse;
    DeleteGroups = 42: 0-2, flexible 2, delete_groups::DeleteGroupsRequest / DeleteGroupsResponse;
    IncrementalAlterConfigs = 44: 0-1, flexible 1,
        incremental_alter_configs::IncrementalAlterConfigsRequest / IncrementalAlterConfigsResponse;
    OffsetDelete = 47: 0-0, flexible NEVER, offset_delete::OffsetDeleteRequest / OffsetDeleteResponse;
    DescribeCluster = 60: 0-2, flexible 0, describe_cluster::DescribeClusterRequest / DescribeClusterResponse;
}

impl ApiKey {
    /// The versions to tell clients of. Produce begins at 0 although only versions from 3 on can be read: older
    /// librdkafka otherwise takes the broker for one that cannot store compressed batches, and stops compressing.
    pub fn advertised_versions(self) -> RangeInclusive<i16> {
        let versions = self.versions();
        if self == ApiKey::Produce { 0..=*versions.end() } else { versions }
    }

    /// Whether this version can be read and written.
    pub fn has_version(self, version: i16) -> bool {
        self.versions().contains(&version)
    }

    /// The version with its flexibility, if it can be read and written.
    pub fn version(self, number: i16) -> Option<Version> {
        self.has_version(number)
            .then(|| Version { number, flexible: number >= self.first_flexible_version() })
    }

    /// The version of the header in front of a request. (Version 0, without a client id, belonged to
    /// ControlledShutdown alone, which only brokers sent to each other.)
    pub fn request_header_version(self, version: i16) -> i16 {
        if version >= self.first_flexible_version() { 2 } else { 1 }
    }

    /// The version of the header in front of a response. That of ApiVersions never has tagged fields, because its
    /// reader cannot know yet in which version the broker answered.
    pub fn response_header_version(self, version: i16) -> i16 {
        if self != ApiKey::ApiVersions && version >= self.first_flexible_version() { 1 } else { 0 }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
