//! What was decided and what came of it: [`Plan`] and [`Outcome`] as records, and back without loss.

use std::time::Duration;

use ballast_model::{
    Action, Budget, Bytes, Compliance, Desired, Estimate, Generation, GuestId, GuestPlan, Move,
    Note, Outcome, OutcomeKind, Paging, Plan, Regret, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::estimate::EstimateRecord;
use super::mechanism::{MoveRecord, PagingRecord, RegretRecord, rung, rung_word};
use super::reason::{ChangeRecord, ClampedRecord, InputRecord, ReasonRecord};
use super::{RecordError, ns, policy, some_bytes};

/// A [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct PlanRecord {
    pub generation: u64,
    pub decided_at_ms: u64,
    pub policy: String,
    pub budget: BudgetRecord,
    pub guests: Vec<GuestPlanRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paging: Vec<PagingRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<NoteRecord>,
}

/// A [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct BudgetRecord {
    pub distributable_bytes: u64,
    pub committed_bytes: u64,
    pub grantable_bytes: u64,
}

/// A [`GuestPlan`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct GuestPlanRecord {
    pub id: GuestId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<BoundsRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<DesiredRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamps: Vec<ClampedRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<u64>,
    pub compliance: ComplianceRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<u64>,
    pub change: ChangeRecord,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balloon_bytes_per_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regret: Option<RegretRecord>,
}

/// Floor and ceiling in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct BoundsRecord {
    pub floor_bytes: u64,
    pub ceiling_bytes: u64,
}

/// A [`Desired`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct DesiredRecord {
    pub target_bytes: u64,
    pub reason: ReasonRecord,
}

/// A [`Compliance`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum ComplianceRecord {
    Compliant,
    Releasing { left_bytes: u64, idle_ns: u64 },
    Slow { left_bytes: u64, asked_ns: u64 },
    Stuck { idle_ns: u64 },
    Inhibited,
}

/// An [`Action`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct ActionRecord {
    pub guest: GuestId,
    pub target_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plug_bytes: Option<u64>,
    pub generation: u64,
    pub deadline_ms: u64,
}

/// A [`Note`]; the code is [`Note::code`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum NoteRecord {
    Infeasible {
        shortfall_bytes: u64,
    },
    BudgetReduced {
        configured_bytes: u64,
        present_bytes: u64,
    },
    HostUnknown,
    Uncounted {
        guests: u64,
    },
    Newcomers {
        guests: u64,
    },
    MissingInput {
        what: InputRecord,
        guests: u64,
        fallback: String,
    },
    ObjectiveViolated {
        guest: GuestId,
        misses_per_s_max: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        misses_per_s: Option<u64>,
    },
    Refused {
        violation: String,
    },
}

/// An [`Outcome`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct OutcomeRecord {
    pub guest: GuestId,
    pub generation: u64,
    pub target_bytes: u64,
    pub result: OutcomeKindRecord,
}

/// An [`OutcomeKind`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "text", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum OutcomeKindRecord {
    Accepted,
    Failed(String),
    Expired,
    Superseded,
    Waiting,
}

impl From<&Plan> for PlanRecord {
    fn from(plan: &Plan) -> Self {
        let Plan { generation, decided_at, policy, budget, guests, actions, paging, rung, notes } =
            plan;
        PlanRecord {
            generation: generation.0,
            decided_at_ms: decided_at.as_millis(),
            policy: policy.as_str().to_owned(),
            budget: (*budget).into(),
            guests: guests.iter().map(GuestPlanRecord::from).collect(),
            actions: actions.iter().map(ActionRecord::from).collect(),
            paging: paging.iter().map(PagingRecord::from).collect(),
            rung: rung_word(*rung),
            notes: notes.iter().map(NoteRecord::from).collect(),
        }
    }
}

impl TryFrom<PlanRecord> for Plan {
    type Error = RecordError;

    fn try_from(record: PlanRecord) -> Result<Plan, RecordError> {
        let guests: Result<_, _> = record.guests.into_iter().map(GuestPlan::try_from).collect();
        let paging: Result<_, _> = record.paging.into_iter().map(Paging::try_from).collect();
        Ok(Plan {
            generation: Generation(record.generation),
            decided_at: Timestamp::from_millis(record.decided_at_ms),
            policy: policy(&record.policy)?,
            budget: record.budget.into(),
            guests: guests?,
            actions: record.actions.into_iter().map(Action::from).collect(),
            paging: paging?,
            rung: rung(record.rung.as_deref())?,
            notes: record.notes.into_iter().map(Note::from).collect(),
        })
    }
}

impl From<Budget> for BudgetRecord {
    fn from(Budget { distributable, committed, grantable }: Budget) -> Self {
        BudgetRecord {
            distributable_bytes: distributable.get(),
            committed_bytes: committed.get(),
            grantable_bytes: grantable.get(),
        }
    }
}

impl From<BudgetRecord> for Budget {
    fn from(record: BudgetRecord) -> Self {
        Budget {
            distributable: Bytes::new(record.distributable_bytes),
            committed: Bytes::new(record.committed_bytes),
            grantable: Bytes::new(record.grantable_bytes),
        }
    }
}

impl From<&GuestPlan> for GuestPlanRecord {
    fn from(guest: &GuestPlan) -> Self {
        let GuestPlan {
            id,
            allocation,
            bounds,
            estimate,
            desired,
            clamps,
            credits,
            compliance,
            target,
            change,
            moves,
            balloon_rate,
            regret,
        } = guest;
        GuestPlanRecord {
            id: id.clone(),
            allocation_bytes: some_bytes(*allocation),
            bounds: bounds.map(|(floor, ceiling)| BoundsRecord {
                floor_bytes: floor.get(),
                ceiling_bytes: ceiling.get(),
            }),
            estimate: estimate.as_ref().map(EstimateRecord::from),
            desired: desired.as_ref().map(|Desired { target, reason }| DesiredRecord {
                target_bytes: target.get(),
                reason: reason.into(),
            }),
            clamps: clamps.iter().map(ClampedRecord::from).collect(),
            credits: *credits,
            compliance: (*compliance).into(),
            target_bytes: some_bytes(*target),
            change: change.into(),
            moves: moves.iter().map(MoveRecord::from).collect(),
            balloon_bytes_per_s: some_bytes(*balloon_rate),
            regret: regret.map(RegretRecord::from),
        }
    }
}

impl TryFrom<GuestPlanRecord> for GuestPlan {
    type Error = RecordError;

    fn try_from(record: GuestPlanRecord) -> Result<Self, RecordError> {
        let moves: Result<_, _> = record.moves.into_iter().map(Move::try_from).collect();
        Ok(GuestPlan {
            id: record.id,
            allocation: record.allocation_bytes.map(Bytes::new),
            bounds: record.bounds.map(|BoundsRecord { floor_bytes, ceiling_bytes }| {
                (Bytes::new(floor_bytes), Bytes::new(ceiling_bytes))
            }),
            estimate: record.estimate.map(Estimate::try_from).transpose()?,
            desired: record.desired.map(|DesiredRecord { target_bytes, reason }| Desired {
                target: Bytes::new(target_bytes),
                reason: reason.into(),
            }),
            clamps: record.clamps.into_iter().map(Into::into).collect(),
            credits: record.credits,
            compliance: record.compliance.into(),
            target: record.target_bytes.map(Bytes::new),
            change: record.change.into(),
            moves: moves?,
            balloon_rate: record.balloon_bytes_per_s.map(Bytes::new),
            regret: record.regret.map(Regret::from),
        })
    }
}

impl From<Compliance> for ComplianceRecord {
    fn from(compliance: Compliance) -> Self {
        match compliance {
            Compliance::Compliant => ComplianceRecord::Compliant,
            Compliance::Releasing { left, idle } => {
                ComplianceRecord::Releasing { left_bytes: left.get(), idle_ns: ns(idle) }
            }
            Compliance::Slow { left, asked } => {
                ComplianceRecord::Slow { left_bytes: left.get(), asked_ns: ns(asked) }
            }
            Compliance::Stuck { idle } => ComplianceRecord::Stuck { idle_ns: ns(idle) },
            Compliance::Inhibited => ComplianceRecord::Inhibited,
        }
    }
}

impl From<ComplianceRecord> for Compliance {
    fn from(record: ComplianceRecord) -> Self {
        match record {
            ComplianceRecord::Compliant => Compliance::Compliant,
            ComplianceRecord::Releasing { left_bytes, idle_ns } => Compliance::Releasing {
                left: Bytes::new(left_bytes),
                idle: Duration::from_nanos(idle_ns),
            },
            ComplianceRecord::Slow { left_bytes, asked_ns } => Compliance::Slow {
                left: Bytes::new(left_bytes),
                asked: Duration::from_nanos(asked_ns),
            },
            ComplianceRecord::Inhibited => Compliance::Inhibited,
            ComplianceRecord::Stuck { idle_ns } => {
                Compliance::Stuck { idle: Duration::from_nanos(idle_ns) }
            }
        }
    }
}

impl From<&Action> for ActionRecord {
    fn from(Action { guest, target, plug, generation, deadline }: &Action) -> Self {
        ActionRecord {
            guest: guest.clone(),
            target_bytes: target.get(),
            plug_bytes: some_bytes(*plug),
            generation: generation.0,
            deadline_ms: deadline.as_millis(),
        }
    }
}

impl From<ActionRecord> for Action {
    fn from(record: ActionRecord) -> Self {
        Action {
            guest: record.guest,
            target: Bytes::new(record.target_bytes),
            plug: record.plug_bytes.map(Bytes::new),
            generation: Generation(record.generation),
            deadline: Timestamp::from_millis(record.deadline_ms),
        }
    }
}

impl From<&Note> for NoteRecord {
    fn from(note: &Note) -> Self {
        match note {
            Note::Infeasible { shortfall } => {
                NoteRecord::Infeasible { shortfall_bytes: shortfall.get() }
            }
            Note::BudgetReduced { configured, present } => NoteRecord::BudgetReduced {
                configured_bytes: configured.get(),
                present_bytes: present.get(),
            },
            Note::HostUnknown => NoteRecord::HostUnknown,
            Note::Uncounted { guests } => NoteRecord::Uncounted { guests: *guests as u64 },
            Note::Newcomers { guests } => NoteRecord::Newcomers { guests: *guests as u64 },
            Note::MissingInput { what, guests, fallback } => NoteRecord::MissingInput {
                what: (*what).into(),
                guests: *guests as u64,
                fallback: fallback.to_string(),
            },
            Note::ObjectiveViolated { guest, misses_per_s_max, misses_per_s } => {
                NoteRecord::ObjectiveViolated {
                    guest: guest.clone(),
                    misses_per_s_max: *misses_per_s_max,
                    misses_per_s: *misses_per_s,
                }
            }
            Note::Refused { violation } => NoteRecord::Refused { violation: violation.clone() },
        }
    }
}

impl From<NoteRecord> for Note {
    fn from(record: NoteRecord) -> Self {
        match record {
            NoteRecord::Infeasible { shortfall_bytes } => {
                Note::Infeasible { shortfall: Bytes::new(shortfall_bytes) }
            }
            NoteRecord::BudgetReduced { configured_bytes, present_bytes } => Note::BudgetReduced {
                configured: Bytes::new(configured_bytes),
                present: Bytes::new(present_bytes),
            },
            NoteRecord::HostUnknown => Note::HostUnknown,
            NoteRecord::Uncounted { guests } => Note::Uncounted { guests: guests as usize },
            NoteRecord::Newcomers { guests } => Note::Newcomers { guests: guests as usize },
            NoteRecord::MissingInput { what, guests, fallback } => Note::MissingInput {
                what: what.into(),
                guests: guests as usize,
                fallback: fallback.into(),
            },
            NoteRecord::ObjectiveViolated { guest, misses_per_s_max, misses_per_s } => {
                Note::ObjectiveViolated { guest, misses_per_s_max, misses_per_s }
            }
            NoteRecord::Refused { violation } => Note::Refused { violation },
        }
    }
}

impl From<&Outcome> for OutcomeRecord {
    fn from(Outcome { guest, generation, target, kind }: &Outcome) -> Self {
        OutcomeRecord {
            guest: guest.clone(),
            generation: generation.0,
            target_bytes: target.get(),
            result: match kind {
                OutcomeKind::Accepted => OutcomeKindRecord::Accepted,
                OutcomeKind::Failed(how) => OutcomeKindRecord::Failed(how.clone()),
                OutcomeKind::Expired => OutcomeKindRecord::Expired,
                OutcomeKind::Superseded => OutcomeKindRecord::Superseded,
                OutcomeKind::Waiting => OutcomeKindRecord::Waiting,
            },
        }
    }
}

impl From<OutcomeRecord> for Outcome {
    fn from(record: OutcomeRecord) -> Self {
        Outcome {
            guest: record.guest,
            generation: Generation(record.generation),
            target: Bytes::new(record.target_bytes),
            kind: match record.result {
                OutcomeKindRecord::Accepted => OutcomeKind::Accepted,
                OutcomeKindRecord::Failed(how) => OutcomeKind::Failed(how),
                OutcomeKindRecord::Expired => OutcomeKind::Expired,
                OutcomeKindRecord::Superseded => OutcomeKind::Superseded,
                OutcomeKindRecord::Waiting => OutcomeKind::Waiting,
            },
        }
    }
}
