//! Whatever members do, in whatever order, and whatever is lost: a generation means one membership,
//! its number never falls, every request is answered, and no member acts on an assignment that is
//! not durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use weir_broker::groups::*;
use weir_broker::{GroupError, GroupOptions, Unavailable};
use weir_model::command::GroupMembership;

const CLIENTS: usize = 5;
const SESSION_MS: u64 = 1_000;
const REBALANCE_MS: u64 = 700;

#[derive(Clone, Debug)]
enum Step {
    /// A client does what its state asks for next: join, sync, or heartbeat.
    Act(usize),
    /// A client joins again although nothing asks for it.
    Rejoin(usize),
    /// A client's process is gone without a word; what it waits for reaches nobody.
    Vanish(usize),
    Leave(usize),
    Commit(usize),
    /// The oldest store is done.
    Stored(bool),
    Wait(u64),
    /// The coordinator starts again from what is durable.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..CLIENTS).prop_map(Step::Act),
        1 => (0..CLIENTS).prop_map(Step::Rejoin),
        1 => (0..CLIENTS).prop_map(Step::Vanish),
        1 => (0..CLIENTS).prop_map(Step::Leave),
        1 => (0..CLIENTS).prop_map(Step::Commit),
        6 => prop::bool::weighted(0.9).prop_map(Step::Stored),
        2 => (1u64..1_200).prop_map(Step::Wait),
        1 => Just(Step::Crash),
    ]
}

#[derive(Clone, Debug, Default)]
struct Client {
    member_id: String,
    generation: i32,
    leads: bool,
    members: Vec<String>,
    must_sync: bool,
    synced: bool,
    waits: Option<u64>,
}

struct World {
    options: Arc<GroupOptions>,
    group: Coordinator,
    now: Moment,
    clients: Vec<Client>,
    static_members: bool,
    /// Who waits for which ticket; none if nobody does any more.
    tickets: BTreeMap<u64, Option<usize>>,
    next_ticket: u64,
    stores: VecDeque<(StoreId, GroupMembership)>,
    durable: GroupMembership,
    /// Leader and members of every generation that a leader heard of.
    announced: BTreeMap<i32, Vec<String>>,
    highest: i32,
    fresh: u64,
}

impl World {
    fn new(static_members: bool, delay: i32) -> World {
        let options = Arc::new(GroupOptions {
            session_timeout_ms_min: 1,
            initial_rebalance_delay_ms: delay,
            size_max: CLIENTS,
            ..GroupOptions::default()
        });
        World {
            group: Coordinator::new(options.clone()),
            options,
            now: 1,
            clients: vec![Client::default(); CLIENTS],
            static_members,
            tickets: BTreeMap::new(),
            next_ticket: 0,
            stores: VecDeque::new(),
            durable: GroupMembership::default(),
            announced: BTreeMap::new(),
            highest: 0,
            fresh: 0,
        }
    }

    fn instance(&self, client: usize) -> Option<String> {
        // Every other client is a static member.
        (self.static_members && client.is_multiple_of(2)).then(|| format!("i{client}"))
    }

    fn ticket(&mut self, client: Option<usize>) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.tickets.insert(ticket, client);
        if let Some(client) = client {
            self.clients[client].waits = Some(ticket);
        }
        Ticket(ticket)
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Act(client) if self.clients[client].waits.is_some() => {}
            Step::Act(client) if self.clients[client].must_sync => self.sync(client),
            Step::Act(client) if self.clients[client].synced => self.heartbeat(client),
            Step::Act(client) | Step::Rejoin(client) => self.join(client),
            Step::Vanish(client) => {
                if let Some(ticket) = self.clients[client].waits {
                    self.tickets.insert(ticket, None);
                }
                self.clients[client] = Client::default();
            }
            Step::Leave(client) => {
                let ticket = self.ticket(None);
                let leaving = LeavingMember {
                    member_id: self.clients[client].member_id.clone(),
                    instance_id: self.instance(client),
                };
                let request = LeaveRequest { group: "g".into(), members: vec![leaving] };
                self.input(Input::Leave(ticket, request));
            }
            Step::Commit(client) => {
                let ticket = self.ticket(None);
                let (generation, id) =
                    (self.clients[client].generation, self.clients[client].member_id.clone());
                self.input(Input::Commit(ticket, generation, id, self.instance(client)));
            }
            Step::Stored(ok) => self.stored(ok),
            Step::Wait(ms) => self.wait(ms),
            Step::Crash => self.crash(),
        }
    }

    fn join(&mut self, client: usize) {
        if let Some(ticket) = self.clients[client].waits.take() {
            self.tickets.insert(ticket, None);
        }
        let ticket = self.ticket(Some(client));
        let request = JoinRequest {
            group: "g".into(),
            member_id: self.clients[client].member_id.clone(),
            instance_id: self.instance(client),
            client_id: format!("c{client}"),
            session_timeout_ms: SESSION_MS as i32,
            rebalance_timeout_ms: REBALANCE_MS as i32,
            protocol_type: "consumer".into(),
            protocols: vec![("range".into(), Bytes::new())],
            require_known_member_id: client.is_multiple_of(3),
            can_skip_assignment: true,
            ..JoinRequest::default()
        };
        self.fresh += 1;
        let fresh = format!("c{client}-{}", self.fresh);
        self.input(Input::Join(ticket, request, fresh));
    }

    fn sync(&mut self, client: usize) {
        let ticket = self.ticket(Some(client));
        let state = &self.clients[client];
        let token = format!("{}@{}", state.member_id, state.generation);
        let assignments = if state.leads { state.members.clone() } else { Vec::new() };
        let request = SyncRequest {
            group: "g".into(),
            generation: state.generation,
            member_id: state.member_id.clone(),
            instance_id: self.instance(client),
            assignments: assignments
                .into_iter()
                .map(|id| (id.clone(), Bytes::from(format!("{id} by {token}"))))
                .collect(),
            ..SyncRequest::default()
        };
        self.input(Input::Sync(ticket, request));
    }

    fn heartbeat(&mut self, client: usize) {
        let ticket = self.ticket(Some(client));
        let state = &self.clients[client];
        let request = HeartbeatRequest {
            group: "g".into(),
            generation: state.generation,
            member_id: state.member_id.clone(),
            instance_id: self.instance(client),
        };
        self.input(Input::Heartbeat(ticket, request));
    }

    fn stored(&mut self, ok: bool) {
        if let Some((store, membership)) = self.stores.pop_front() {
            if ok {
                assert!(membership.generation >= self.durable.generation, "the durable generation falls");
                self.durable = membership;
            }
            let result = if ok { Ok(()) } else { Err(Unavailable::TimedOut) };
            self.input(Input::Stored(store, result));
        }
    }

    fn wait(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(deadline) = self.group.next_deadline().filter(|deadline| *deadline <= until) {
            assert!(deadline > self.now, "a deadline that has passed is still due");
            self.now = deadline;
            self.input(Input::Tick);
        }
        self.now = until;
        self.input(Input::Tick);
    }

    fn crash(&mut self) {
        // What was on its way may have become durable, all or some of it, in order.
        let survives = self.stores.len() / 2;
        for (_, membership) in self.stores.drain(..).take(survives) {
            self.durable = membership;
        }
        self.input(Input::Stop(Unavailable::ShuttingDown.into()));
        assert!(self.tickets.is_empty(), "somebody waits for a coordinator that is gone");
        self.group = Coordinator::restore(self.options.clone(), &self.durable, self.now);
    }

    fn input(&mut self, input: Input) {
        let before = self.group.generation();
        let actions = self.group.handle(input, self.now);
        assert!(self.group.generation() >= before, "the generation falls");
        for action in actions {
            match action {
                Action::Store(store, membership) => self.stores.push_back((store, membership)),
                Action::Answer(ticket, answer) => self.answered(ticket.0, answer),
            }
        }
    }

    fn answered(&mut self, ticket: u64, answer: Answer) {
        let waiting = self.tickets.remove(&ticket).expect("an answer to what was asked once");
        if let Answer::Join(Ok(joined)) = &answer {
            self.heard_of_generation(joined);
        }
        let Some(client) = waiting else { return };
        let instance = self.instance(client);
        let state = &mut self.clients[client];
        state.waits = None;
        match answer {
            Answer::Join(Ok(joined)) => {
                assert!(joined.generation >= state.generation || joined.member_id != state.member_id);
                *state = Client {
                    leads: joined.leader == joined.member_id && !joined.skip_assignment,
                    members: joined.members.iter().map(|member| member.member_id.clone()).collect(),
                    member_id: joined.member_id,
                    generation: joined.generation,
                    must_sync: true,
                    synced: false,
                    waits: None,
                };
            }
            Answer::Join(Err(GroupError::MemberIdRequired { member_id })) => state.member_id = member_id,
            Answer::Sync(Ok(synced)) => {
                state.must_sync = false;
                state.synced = true;
                let text = String::from_utf8(synced.assignment.to_vec()).unwrap();
                if instance.is_none() && !text.is_empty() {
                    assert!(text.starts_with(&format!("{} by ", state.member_id)), "not its own: {text}");
                    assert!(text.ends_with(&format!("@{}", state.generation)), "not of its time: {text}");
                }
                let stored = self.durable.members.iter().find(|m| m.member_id == state.member_id);
                assert!(stored.is_some_and(|stored| stored.assignment == synced.assignment), "not durable");
                assert!(self.durable.generation >= state.generation);
            }
            Answer::Join(Err(error)) | Answer::Sync(Err(error)) => Self::failed(state, &error),
            Answer::Heartbeat(Err(error)) => Self::failed(state, &error),
            _ => {}
        }
    }

    fn failed(state: &mut Client, error: &GroupError) {
        let keeps_id = matches!(
            error,
            GroupError::RebalanceInProgress | GroupError::IllegalGeneration | GroupError::Unavailable(_)
        );
        let member_id = if keeps_id { state.member_id.clone() } else { String::new() };
        let generation = if keeps_id { state.generation } else { 0 };
        *state = Client { member_id, generation, ..Client::default() };
    }

    fn heard_of_generation(&mut self, joined: &Joined) {
        assert!(joined.generation >= self.highest, "an older generation is announced");
        self.highest = joined.generation;
        assert!(self.durable.generation >= joined.generation, "announced before it is durable");
        if self.static_members || joined.leader != joined.member_id {
            return;
        }
        let members: Vec<String> = joined.members.iter().map(|member| member.member_id.clone()).collect();
        let known = self.announced.entry(joined.generation).or_insert_with(|| members.clone());
        let (known, now): (BTreeSet<_>, BTreeSet<_>) = (known.iter().collect(), members.iter().collect());
        assert_eq!(known, now, "generation {} means two memberships", joined.generation);
    }

    /// Nobody does anything any more: all is answered and the group is empty in the end.
    fn settle(&mut self) {
        for _ in 0..100 {
            while !self.stores.is_empty() {
                self.stored(true);
            }
            self.wait(REBALANCE_MS.max(SESSION_MS) * 2);
        }
        self.wait(400_000);
        while !self.stores.is_empty() {
            self.stored(true);
        }
        self.wait(400_000);
        assert!(self.tickets.is_empty(), "never answered: {:?}", self.tickets);
        assert!(self.group.is_vacant(), "members that nobody heard of: {:?}", self.group.describe("g"));
        assert_eq!(self.group.next_deadline(), None);
    }

    /// Everybody behaves: the group comes to rest with all of them in it.
    fn come_right(&mut self) {
        for _ in 0..200 {
            for client in 0..CLIENTS {
                self.run(Step::Act(client));
            }
            while !self.stores.is_empty() {
                self.stored(true);
            }
            self.wait(60);
        }
        for client in 0..CLIENTS {
            for _ in 0..3 {
                self.run(Step::Act(client));
            }
        }
        assert_eq!(self.group.state(), GroupState::Stable, "{:?}", self.group.describe("g"));
        for client in &self.clients {
            assert!(client.synced, "{client:?} of {:?}", self.group.describe("g"));
            assert_eq!(client.generation, self.group.generation());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_answered_and_generations_are_unique(
        steps in prop::collection::vec(step(), 1..150),
        static_members in any::<bool>(),
        delay in prop_oneof![Just(0), Just(50)],
    ) {
        let mut world = World::new(static_members, delay);
        for step in steps {
            world.run(step);
        }
        world.settle();
    }

    #[test]
    fn a_group_comes_right_when_its_members_behave(
        steps in prop::collection::vec(step(), 1..80),
        static_members in any::<bool>(),
        delay in prop_oneof![Just(0), Just(50)],
    ) {
        let mut world = World::new(static_members, delay);
        for step in steps {
            world.run(step);
        }
        world.come_right();
    }
}
