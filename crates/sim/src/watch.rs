//! What is looked at again and again while a run goes on: whether a record that is not settled is still there, and whether
//! a replica says that it has diverged.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::node::SimNode;
use crate::queues::QueueDamage;

/// How often, in simulated time.
const EVERY: Duration = Duration::from_millis(500);

/// Findings of one kind that are kept: one fault shows again and again.
const KEPT_MAX: usize = 20;

/// Looks at all nodes.
#[derive(Debug, Default)]
pub struct Watch {
    looked_at: Duration,
    found: Vec<QueueDamage>,
    /// Segments that were seen to be written anew, by partition, and partitions that were seen to be trimmed.
    rewritten: BTreeSet<(String, usize)>,
    trimmed: BTreeSet<(String, i64)>,
}

impl Watch {
    /// Looks, if it is time.
    pub fn look(&mut self, now: Duration, nodes: &[SimNode]) {
        if now < self.looked_at + EVERY {
            return;
        }
        self.looked_at = now;
        for node in nodes {
            let Some(survey) = node.survey() else { continue };
            for (topic, there) in survey.partitions {
                for offset in there.gone {
                    self.find(QueueDamage::GoneUnsettled {
                        node: node.index(),
                        topic: topic.clone(),
                        offset,
                    });
                }
                if there.segments.1 > 0 {
                    self.rewritten.insert((topic.clone(), there.segments.1));
                }
                if there.log.0 > 0 {
                    self.trimmed.insert((topic, there.log.0));
                }
            }
            for why in survey.stopped.into_values().filter(|why| why.contains("diverged")) {
                self.find(QueueDamage::Stopped { node: node.index(), why });
            }
        }
    }

    fn find(&mut self, damage: QueueDamage) {
        if !self.found.contains(&damage) && self.found.len() < KEPT_MAX {
            self.found.push(damage);
        }
    }

    /// What was found.
    pub fn found(&self) -> &[QueueDamage] {
        &self.found
    }

    /// How often logs of queues were seen to be trimmed further, and written anew.
    pub fn trims_and_rewrites(&self) -> (usize, usize) {
        (self.trimmed.len(), self.rewritten.len())
    }
}
