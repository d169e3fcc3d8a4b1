//! The verbs that send and read records, over Kafka's protocol like everybody else's clients.

mod bench;
mod consume;
mod produce;

pub use bench::BenchCommand;
pub use consume::ConsumeArgs;
pub use produce::ProduceArgs;

use weir_client::{Client, ClientError, ClientOptions, Compression, ErrorCode};

use crate::contexts::BootstrapArgs;
use crate::exit::Failure;

/// How batches are compressed, as a flag.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CompressionFlag {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl From<CompressionFlag> for Compression {
    fn from(flag: CompressionFlag) -> Compression {
        match flag {
            CompressionFlag::None => Compression::None,
            CompressionFlag::Gzip => Compression::Gzip,
            CompressionFlag::Snappy => Compression::Snappy,
            CompressionFlag::Lz4 => Compression::Lz4,
            CompressionFlag::Zstd => Compression::Zstd,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::Options(why) => Failure::Usage(why),
            ClientError::Unreachable { .. } => Failure::Unreachable(format!(
                "{error}; start a server with `weir serve`, or name another with --bootstrap"
            )),
            ClientError::Refused { what, code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, .. } => {
                Failure::Failed(format!("{what} does not exist; `weir topic list` lists the topics"))
            }
            error => Failure::Failed(error.to_string()),
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("the runtime does not start: {error}")))
}

async fn connect(bootstrap: &BootstrapArgs) -> Result<Client, Failure> {
    let mut options = ClientOptions::parse(&bootstrap.bootstrap()?)?;
    if options.client_id == ClientOptions::CLIENT_ID {
        options.client_id = "weir-cli".to_owned();
    }
    options.credentials = bootstrap
        .credentials()?
        .map(|known| weir_client::Credentials { user: known.user, password: known.password });
    Ok(Client::with_options(options).await?)
}
