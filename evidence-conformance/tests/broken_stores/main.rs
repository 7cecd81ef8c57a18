//! The conformance suite bites: a store that breaks any one promise fails it.

mod store;

use std::sync::Arc;

use evidence_conformance::memory::MemoryStore;
use evidence_conformance::{checks, transfer_checks};
use tokio::runtime::Builder;

/// One way to break the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    DropsTheLastFact,
    IgnoresPreconditions,
    KeepsPartOfARefusedWrite,
    AnswersEntriesBackwards,
    RevisionIsOffByOne,
    LeafHashIsAnother,
    LeavesAreOfOneSize,
    HeadIsEmpty,
    UnknownLedgerHasAHead,
    LosesStoredNodes,
    ShowsOtherOrganizationsFlows,
    SharesBlobs,
    LosesAChunk,
    SearchesMindCase,
    PercentIsAWildcard,
    TotalIsOfTheWindow,
    FlowsAreBackwards,
    IgnoresTheTrailOfAQuery,
    ForgetsTheVersionOfTheTrail,
    OldestTrailFirst,
    OneNewestTrailOnly,
    ForgetsOptions,
    OldestAttestationFirst,
    ForgetsTheOverride,
    CountsOnePastTheLimit,
    RoleIsNeverUpdated,
    MembersAreBackwards,
    ChangesOfRolesAreOldestFirst,
    ChangesOfRolesAreOnePage,
    KnowsOneRepoOfAList,
    LogsNoExits,
    CountsTheEntryAsBeforeItself,
    TellsNobodyLeft,
    DropsWhatHasNoDigest,
    RunsAreBackwards,
    ForgetsTheFirstRun,
    TellsWhatRunsOfAllReports,
    ForgetsExits,
    CountsPagesOfEvents,
    ReplacesWhatBeganTogether,
    ReplacesByNamesAlone,
    MeasuresTheFirstEvent,
    EndsWindowsEarly,
    LedgersEndEarly,
    EntriesAreOfOneTime,
    ListsDeploymentsOfAllFlows,
    OldestDeploymentFirst,
    ForgetsLaterDeployments,
    RepeatsAllowlistEntries,
    AllowsSinceTheFirst,
    AllowsByTheNewestEntry,
    AllowlistEntriesNeverExpire,
    ListsEndedAllowlistEntries,
    CutsEndedAllowlistEntriesAtTheLimit,
    KnowsOnePolicyOfAList,
    ForgetsArchivedControls,
    SortsNumbersAsText,
    ForgetsNumbersOfDeletedActions,
    LosesEachSecondUrl,
    PutsDeliveriesOverOthers,
    PutsDeliveriesWithoutTheLease,
    ServesTheNewestFirst,
    ChecksPreconditionsBeforehand,
    TellsLosersThatTheyWon,
    GuessesIndexes,
    WritesFactsOneByOne,
    CheckpointsAreReplacedByAnybody,
    RecordsAreEverybodys,
    LeasesNeverExpire,
    LeasesAreEverybodys,
    LeasesEndAsAskedLast,
    RenewsLostLeases,
    CursorsAreSetByAnybody,
    RemovesWhateverIsNoted,
    NotesWhatIsBeingRemoved,
    NotesAnotherPlace,
    NamesNoAttachment,
    RemovesWhatOthersHave,
    WritesImportsAnew,
    ImportsAnywhere,
    KeepsPartOfARefusedImport,
    ListsOrganizationsBackwards,
    ForgetsKeyHashes,
    ShowsOtherOrganizationsAttachments,
    ShowsOtherOrganizationsTexts,
    RepeatsTexts,
    AnswersPagesOfAnySize,
    CountsWhatItLists,
    TellsOriginsOfAllEntries,
    GivesTheLastNameAlone,
    NamesByTheOldestRun,
    NamesByOtherOrganizationsRuns,
    NumbersAttestationsFromZero,
    BeginsFlowsAnew,
    ListsAttestationsOfAnyTime,
    ShowsOtherOrganizationsAttestations,
    OldestTrailOfACommitFirst,
    FindsCommitsInAnyFlow,
    ForgetsTheCommitOfAnAttestation,
    DecisionsAreBackwards,
    ShowsOtherOrganizationsDecisions,
    CountsDecisionsOfThePage,
    CountsBuildsOfAllRepos,
    VersionsKeepTheirRevision,
    VersionsCountAttestationsAlone,
}

/// Each defect, and a check that has to find it where no other promise is about the same.
const DEFECTS: &[(Defect, &[&str])] = &[
    (Defect::DropsTheLastFact, &[]),
    (Defect::IgnoresPreconditions, &[]),
    (Defect::KeepsPartOfARefusedWrite, &[]),
    (Defect::AnswersEntriesBackwards, &[]),
    (Defect::RevisionIsOffByOne, &[]),
    (Defect::LeafHashIsAnother, &[]),
    (Defect::LeavesAreOfOneSize, &["leaves_are_those_of_the_entries"]),
    (Defect::HeadIsEmpty, &[]),
    (Defect::UnknownLedgerHasAHead, &[]),
    (Defect::LosesStoredNodes, &[]),
    (Defect::ShowsOtherOrganizationsFlows, &[]),
    (Defect::SharesBlobs, &[]),
    (Defect::LosesAChunk, &[]),
    (Defect::SearchesMindCase, &[]),
    (Defect::PercentIsAWildcard, &[]),
    (Defect::TotalIsOfTheWindow, &[]),
    (Defect::FlowsAreBackwards, &[]),
    (Defect::IgnoresTheTrailOfAQuery, &["an_artifact_of_a_flow_is_its_newest_report"]),
    (Defect::ForgetsTheVersionOfTheTrail, &["an_artifact_of_a_flow_is_its_newest_report"]),
    (Defect::OldestTrailFirst, &[]),
    (Defect::OneNewestTrailOnly, &[]),
    (Defect::ForgetsOptions, &[]),
    (Defect::OldestAttestationFirst, &[]),
    (Defect::ForgetsTheOverride, &[]),
    (Defect::CountsOnePastTheLimit, &["sizes_are_counted_up_to_a_limit"]),
    (Defect::RoleIsNeverUpdated, &[]),
    (Defect::MembersAreBackwards, &[]),
    (Defect::ChangesOfRolesAreOldestFirst, &["changes_of_roles_come_in_pages"]),
    (Defect::ChangesOfRolesAreOnePage, &["changes_of_roles_come_in_pages"]),
    (Defect::KnowsOneRepoOfAList, &["repos_are_found_by_name"]),
    (Defect::ForgetsExits, &[]),
    (Defect::DropsWhatHasNoDigest, &["what_has_no_digest_runs_by_its_name"]),
    (Defect::RunsAreBackwards, &[]),
    (Defect::ForgetsTheFirstRun, &["the_first_run_is_shown_with_the_newest"]),
    (Defect::TellsWhatRunsOfAllReports, &["builds_of_a_repo_run"]),
    (Defect::LogsNoExits, &["events_are_found_by_number"]),
    (Defect::CountsTheEntryAsBeforeItself, &["progress_is_told_by_the_ledger"]),
    (Defect::TellsNobodyLeft, &["changes_of_members_are_kept"]),
    (Defect::CountsPagesOfEvents, &["events_of_repos_are_counted"]),
    (Defect::ReplacesWhatBeganTogether, &["what_a_start_replaced"]),
    (Defect::ReplacesByNamesAlone, &["what_a_start_replaced"]),
    (Defect::MeasuresTheFirstEvent, &["events_are_found_by_number"]),
    (Defect::EndsWindowsEarly, &["builds_are_narrowed"]),
    (Defect::EntriesAreOfOneTime, &["entries_have_times"]),
    (Defect::LedgersEndEarly, &["a_ledger_has_grown_by_a_time"]),
    (Defect::ListsDeploymentsOfAllFlows, &["deployments_are_narrowed"]),
    (Defect::OldestDeploymentFirst, &["deployments_are_listed_newest_first"]),
    (Defect::ForgetsLaterDeployments, &["the_last_deployment_is_found"]),
    (Defect::RepeatsAllowlistEntries, &[]),
    (Defect::AllowsSinceTheFirst, &["artifacts_are_allowed_where_they_are"]),
    (Defect::AllowsByTheNewestEntry, &["artifacts_are_allowed_where_they_are"]),
    (Defect::AllowlistEntriesNeverExpire, &["allowlist_entries_end"]),
    (Defect::ListsEndedAllowlistEntries, &["allowlist_entries_end"]),
    (Defect::CutsEndedAllowlistEntriesAtTheLimit, &["ended_allowlist_entries_are_found"]),
    (Defect::KnowsOnePolicyOfAList, &["policies_are_found_by_name"]),
    (Defect::ForgetsArchivedControls, &["controls_are_found_by_identifier"]),
    (Defect::SortsNumbersAsText, &["actions_are_listed_by_number"]),
    (Defect::ForgetsNumbersOfDeletedActions, &["deleted_actions_are_gone"]),
    (Defect::LosesEachSecondUrl, &["secret_urls_are_stored_until_they_are_removed"]),
    (
        Defect::PutsDeliveriesOverOthers,
        &["deliveries_are_put_by_compare_and_swap", "a_delivery_is_put_under_a_lease_that_is_held"],
    ),
    (Defect::PutsDeliveriesWithoutTheLease, &["a_delivery_is_put_under_a_lease_that_is_held"]),
    (Defect::ServesTheNewestFirst, &["due_deliveries_are_found_by_organization"]),
    (Defect::ChecksPreconditionsBeforehand, &["one_takes_a_name", "no_update_is_lost"]),
    (Defect::TellsLosersThatTheyWon, &["one_makes_an_organization", "one_makes_a_user"]),
    (Defect::GuessesIndexes, &["ledgers_neither_fork_nor_gap"]),
    (
        Defect::CheckpointsAreReplacedByAnybody,
        &["a_checkpoint_replaces_the_last", "checkpoints_are_apart", "one_replaces_a_checkpoint"],
    ),
    (Defect::RecordsAreEverybodys, &["records_are_found_by_id"]),
    (Defect::LeasesNeverExpire, &["a_lease_that_expired_is_taken_over"]),
    (Defect::LeasesAreEverybodys, &["one_holds_a_lease"]),
    (Defect::LeasesEndAsAskedLast, &["a_late_renewal_shortens_nothing"]),
    (Defect::RenewsLostLeases, &["a_lease_that_was_lost_is_not_renewed"]),
    (
        Defect::CursorsAreSetByAnybody,
        &["a_cursor_goes_on_by_compare_and_swap", "who_lost_the_lease_moves_nothing"],
    ),
    (
        Defect::RemovesWhateverIsNoted,
        &["only_what_is_as_it_was_read_is_removed", "who_keeps_it_again_has_it"],
    ),
    (Defect::NotesWhatIsBeingRemoved, &["what_is_being_removed_is_not_kept"]),
    (Defect::NotesAnotherPlace, &["one_place_of_attachments_is_noted"]),
    (Defect::NamesNoAttachment, &["what_is_kept_is_pending_until_a_record_names_it"]),
    (Defect::RemovesWhatOthersHave, &["an_organizations_notes_are_its_own"]),
    (Defect::WritesImportsAnew, &["imports_keep_the_leaves"]),
    (Defect::ImportsAnywhere, &["imports_go_on_at_the_end"]),
    (Defect::KeepsPartOfARefusedImport, &["imports_are_whole"]),
    (Defect::ListsOrganizationsBackwards, &["organizations_come_by_id"]),
    (Defect::ForgetsKeyHashes, &["key_hashes_are_answered", "copies_are_equal"]),
    (Defect::ShowsOtherOrganizationsAttachments, &["attachments_come_by_digest"]),
    (Defect::ShowsOtherOrganizationsTexts, &["texts_are_an_organizations_own"]),
    (Defect::AnswersPagesOfAnySize, &["pages_end_after_some_megabytes"]),
    (Defect::RepeatsTexts, &["a_text_that_is_kept_twice_is_one"]),
    (Defect::WritesFactsOneByOne, &["ledgers_neither_fork_nor_gap", "readers_see_whole_writes"]),
    (Defect::CountsWhatItLists, &["what_is_found_is_limited"]),
    (
        Defect::TellsOriginsOfAllEntries,
        &["provenance_has_the_last_name_in_the_flow", "provenance_prefers_trails"],
    ),
    (Defect::GivesTheLastNameAlone, &["content_has_all_names_that_flows_gave_it"]),
    (Defect::NamesByTheOldestRun, &["what_ran_unreported_is_found"]),
    (Defect::NamesByOtherOrganizationsRuns, &["what_ran_unreported_is_found"]),
    (Defect::NumbersAttestationsFromZero, &["attestations_are_walked_newest_first"]),
    (Defect::BeginsFlowsAnew, &["attestations_are_walked_newest_first"]),
    (Defect::ListsAttestationsOfAnyTime, &["attestations_of_a_flow_are_paged"]),
    (Defect::ShowsOtherOrganizationsAttestations, &["attestations_have_sizes"]),
    (Defect::OldestTrailOfACommitFirst, &["trails_are_found_by_commit"]),
    (Defect::FindsCommitsInAnyFlow, &["trails_are_found_by_commit"]),
    (Defect::ForgetsTheCommitOfAnAttestation, &["contents_are_complete"]),
    (Defect::DecisionsAreBackwards, &["decisions_are_listed_in_the_order_asked"]),
    (Defect::ShowsOtherOrganizationsDecisions, &["decisions_are_narrowed"]),
    (Defect::CountsDecisionsOfThePage, &["decisions_about_each_control_are_paged"]),
    (Defect::CountsBuildsOfAllRepos, &["builds_of_any_window_are_paged"]),
    (Defect::VersionsKeepTheirRevision, &["trails_read_back"]),
    (Defect::VersionsCountAttestationsAlone, &["versions_tell_what_is_read"]),
];

/// A memory store with at most one defect.
struct Broken {
    whole: MemoryStore,
    defect: Option<Defect>,
}

impl Broken {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }
}

/// The names of those checks that fail, one by one as they are asked for.
fn failures(
    defect: Option<Defect>,
    wanted: impl Fn(&str) -> bool + Copy,
) -> impl Iterator<Item = &'static str> {
    let runtime = Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let fresh = move || Arc::new(Broken { whole: MemoryStore::new(), defect });
    let of_stores = checks().into_iter().map(move |check| (check.name, (check.run)(fresh())));
    let of_transfer = transfer_checks().into_iter().map(move |check| (check.name, (check.run)(fresh())));
    let named = of_stores.chain(of_transfer).filter_map(move |(name, running)| {
        let name = name.rsplit("::").next().filter(|name| wanted(name))?;
        Some((name, running))
    });
    named.filter_map(move |(name, running)| runtime.block_on(running).is_err().then_some(name))
}

#[test]
fn a_store_without_defect_passes() {
    assert_eq!(failures(None, |_| true).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn every_defect_is_found() {
    for &(defect, named) in DEFECTS {
        let mut failed = failures(Some(defect), |name| named.is_empty() || named.contains(&name));
        if named.is_empty() {
            assert!(failed.next().is_some(), "the suite passes a store that {defect:?}");
        } else {
            assert_eq!(failed.count(), named.len(), "of {named:?} one passes a store that {defect:?}");
        }
    }
}
