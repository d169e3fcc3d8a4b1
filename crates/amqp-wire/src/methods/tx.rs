//! Class tx: publishes and acknowledgements that take effect together (section 1.9).

use crate::schema::methods;

methods! {
    "tx" = 90;

    /// Makes the channel transactional.
    Select = 10 "select" {}

    /// It is.
    SelectOk = 11 "select-ok" {}

    /// Ends the transaction and begins another.
    Commit = 20 "commit" {}

    /// It is done.
    CommitOk = 21 "commit-ok" {}

    /// Forgets the transaction and begins another.
    Rollback = 30 "rollback" {}

    /// It is forgotten.
    RollbackOk = 31 "rollback-ok" {}
}
