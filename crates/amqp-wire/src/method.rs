//! Every method of the protocol as one type, and what all of them have in common.

use crate::error::{DecodeError, Why};
#[cfg(any(test, feature = "generate"))]
use crate::generate::Source;
use crate::methods::{access, basic, channel, confirm, connection, exchange, queue, tx};
use crate::reader::Reader;
use crate::writer::{Writer, write_method};
use bytes::Bytes;

/// The fields of one method, and which method that is.
pub trait MethodFields: Into<Method> {
    /// Id of its class.
    const CLASS_ID: u16;
    /// Id of the method within its class.
    const METHOD_ID: u16;
    /// Class and method, such as `queue.declare`.
    const NAME: &'static str;
    /// Whether a content header and a body follow.
    const HAS_CONTENT: bool;
    /// Both ids in one number.
    #[doc(hidden)]
    const ID: u32 = id(Self::CLASS_ID, Self::METHOD_ID);

    /// Reads the fields.
    #[doc(hidden)]
    fn read_fields(reader: &mut Reader) -> Result<Self, DecodeError>;

    /// Writes the fields.
    #[doc(hidden)]
    fn write_fields(&self, writer: &mut Writer);

    /// A random method of this kind.
    #[cfg(any(test, feature = "generate"))]
    #[doc(hidden)]
    fn generate(source: &mut Source) -> Self;
}

/// A method that a content header and a body follow.
pub trait ContentMethod: MethodFields {}

/// Ids of a class and of a method within it.
pub type MethodIds = (u16, u16);

const fn id(class: u16, method: u16) -> u32 {
    ((class as u32) << 16) | method as u32
}

macro_rules! method {
    ($( $variant:ident($class:ident::$name:ident), )*) => {
        /// A method of any class.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Method {
            $( $variant($class::$name), )*
        }

        impl Method {
            /// Reads the payload of a method frame, which must end where the bytes end.
            pub fn decode(payload: Bytes) -> Result<Self, DecodeError> {
                let mut reader = Reader::new(payload);
                let class = reader.field::<u16>("class id", false)?;
                let method = reader.field::<u16>("method id", false)?;
                let method = match id(class, method) {
                    $(
                        <$class::$name as MethodFields>::ID => {
                            Method::$variant(MethodFields::read_fields(&mut reader)?)
                        }
                    )*
                    _ => {
                        let why = Why::UnknownMethod { class, method };
                        return Err(DecodeError { what: "method", at: 0, why });
                    }
                };
                reader.end(method.name())?;
                Ok(method)
            }

            /// Ids of the method that a payload says that it is, which need not exist; zeros where it is cut off.
            pub fn ids(payload: &[u8]) -> MethodIds {
                match payload.first_chunk::<4>() {
                    Some(&[a, b, c, d]) => (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
                    None => (0, 0),
                }
            }

            /// Class and method, such as `queue.declare`.
            pub fn name(&self) -> &'static str {
                match self {
                    $( Method::$variant(_) => <$class::$name as MethodFields>::NAME, )*
                }
            }

            /// Id of its class; `connection.close` and `channel.close` name the method at fault by it.
            pub fn class_id(&self) -> u16 {
                match self {
                    $( Method::$variant(_) => <$class::$name as MethodFields>::CLASS_ID, )*
                }
            }

            /// Id of the method within its class.
            pub fn method_id(&self) -> u16 {
                match self {
                    $( Method::$variant(_) => <$class::$name as MethodFields>::METHOD_ID, )*
                }
            }

            /// Whether a content header and a body follow.
            pub fn has_content(&self) -> bool {
                match self {
                    $( Method::$variant(_) => <$class::$name as MethodFields>::HAS_CONTENT, )*
                }
            }

            /// The payload of a method frame.
            pub(crate) fn write(&self, writer: &mut Writer) {
                match self {
                    $( Method::$variant(method) => write_method(method, writer), )*
                }
            }

            /// A random method of each kind.
            #[cfg(any(test, feature = "generate"))]
            pub fn generate_each(source: &mut Source) -> Vec<Method> {
                vec![$( Method::$variant(MethodFields::generate(source)), )*]
            }
        }

        $(
            impl From<$class::$name> for Method {
                fn from(method: $class::$name) -> Self {
                    Method::$variant(method)
                }
            }
        )*
    };
}

method! {
    ConnectionStart(connection::Start),
    ConnectionStartOk(connection::StartOk),
    ConnectionSecure(connection::Secure),
    ConnectionSecureOk(connection::SecureOk),
    ConnectionTune(connection::Tune),
    ConnectionTuneOk(connection::TuneOk),
    ConnectionOpen(connection::Open),
    ConnectionOpenOk(connection::OpenOk),
    ConnectionClose(connection::Close),
    ConnectionCloseOk(connection::CloseOk),
    ConnectionBlocked(connection::Blocked),
    ConnectionUnblocked(connection::Unblocked),
    ConnectionUpdateSecret(connection::UpdateSecret),
    ConnectionUpdateSecretOk(connection::UpdateSecretOk),
    ChannelOpen(channel::Open),
    ChannelOpenOk(channel::OpenOk),
    ChannelFlow(channel::Flow),
    ChannelFlowOk(channel::FlowOk),
    ChannelClose(channel::Close),
    ChannelCloseOk(channel::CloseOk),
    AccessRequest(access::Request),
    AccessRequestOk(access::RequestOk),
    ExchangeDeclare(exchange::Declare),
    ExchangeDeclareOk(exchange::DeclareOk),
    ExchangeDelete(exchange::Delete),
    ExchangeDeleteOk(exchange::DeleteOk),
    ExchangeBind(exchange::Bind),
    ExchangeBindOk(exchange::BindOk),
    ExchangeUnbind(exchange::Unbind),
    ExchangeUnbindOk(exchange::UnbindOk),
    QueueDeclare(queue::Declare),
    QueueDeclareOk(queue::DeclareOk),
    QueueBind(queue::Bind),
    QueueBindOk(queue::BindOk),
    QueuePurge(queue::Purge),
    QueuePurgeOk(queue::PurgeOk),
    QueueDelete(queue::Delete),
    QueueDeleteOk(queue::DeleteOk),
    QueueUnbind(queue::Unbind),
    QueueUnbindOk(queue::UnbindOk),
    BasicQos(basic::Qos),
    BasicQosOk(basic::QosOk),
    BasicConsume(basic::Consume),
    BasicConsumeOk(basic::ConsumeOk),
    BasicCancel(basic::Cancel),
    BasicCancelOk(basic::CancelOk),
    BasicPublish(basic::Publish),
    BasicReturn(basic::Return),
    BasicDeliver(basic::Deliver),
    BasicGet(basic::Get),
    BasicGetOk(basic::GetOk),
    BasicGetEmpty(basic::GetEmpty),
    BasicAck(basic::Ack),
    BasicReject(basic::Reject),
    BasicRecoverAsync(basic::RecoverAsync),
    BasicRecover(basic::Recover),
    BasicRecoverOk(basic::RecoverOk),
    BasicNack(basic::Nack),
    ConfirmSelect(confirm::Select),
    ConfirmSelectOk(confirm::SelectOk),
    TxSelect(tx::Select),
    TxSelectOk(tx::SelectOk),
    TxCommit(tx::Commit),
    TxCommitOk(tx::CommitOk),
    TxRollback(tx::Rollback),
    TxRollbackOk(tx::RollbackOk),
}
