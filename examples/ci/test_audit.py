from guard.testing import AuditGate

RUN = "--suite sai_asa --quick --replay cassette --baseline audit.baseline.json --allow guard"


def test_the_guard_is_no_worse_than_its_baseline(guard_audit: AuditGate) -> None:
    guard_audit.run(*RUN.split())
