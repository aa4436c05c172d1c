"""The pages of alarms, and the marks in the navigation."""

from playwright.sync_api import expect

from hookmill.store.database import open_database, sqlite_url
from tests.dashboard.client import Dashboard, Elements, Visitor, text_of
from tests.dashboard.conftest import press
from tests.support.alarms import add_alarm
from tests.support.world import START_US

LIST = "/f/default/alarms"
HOUR = 3_600_000_000


def add(dashboard: Dashboard, subject_id: str = "wh_1", **options: int) -> str:
    return add_alarm(dashboard.world.database, dashboard.world.factory.id, subject_id, name="orders", **options)


def marks(visitor: Visitor, path: str = "/f/default") -> list[bool]:
    """Whether the navigation marks alarms of the factory, and of the installation."""
    text = text_of(visitor.get(path).body)
    return ["Alarms open" in text, "Installation alarm open" in text]


def test_list_has_open_alarms_first_and_then_resolved_ones(dashboard, manager):
    opened = add(dashboard, "wh_2")
    resolved = add(dashboard, "wh_1", at=START_US + 1, resolved_at=START_US + HOUR)

    page = manager.get(LIST)
    links = [link.attributes["href"] for link in Elements(page.body).with_tag("a")]

    assert [link for link in links if "/alarms/" in link] == [f"{LIST}/{opened}", f"{LIST}/{resolved}"]
    assert text_of(page.body).count("Something is wrong.") == 2


def test_resolved_alarms_are_listed_page_by_page(dashboard, manager):
    for number in range(60):
        add(dashboard, f"wh_{number}", at=START_US + number, resolved_at=START_US + HOUR)

    first = Elements(manager.get(LIST).body)
    [older] = [link.attributes["href"] for link in first.with_tag("a") if "before=alm_" in link.attributes["href"]]

    assert first.text.count("Something is wrong.") == 50
    assert Elements(manager.get(older).body).text.count("Something is wrong.") == 10
    assert manager.get(f"{LIST}?before=x").status == 422


def test_manager_snoozes_and_wakes_an_alarm(dashboard, manager):
    path = f"{LIST}/{add(dashboard)}"

    snoozed = manager.post(f"{path}/snooze", {"hours": "24"})
    during = text_of(manager.get(path).body)
    refused = manager.post(f"{path}/snooze", {"hours": "9"})
    woken = manager.post(f"{path}/wake")

    assert (snoozed.status, snoozed.headers["location"]) == (303, f"{path}?flash=alarm-snoozed")
    assert "State snoozed until 2030-03-18 17:46:40 UTC" in during
    assert refused.status == 422
    assert "must end within the next 720 hours" in text_of(refused.body)
    assert woken.headers["location"] == f"{path}?flash=alarm-woken"
    assert "State open" in text_of(manager.get(path).body)


def test_viewer_sees_what_to_do_and_no_button(dashboard, viewer):
    text = text_of(viewer.get(f"{LIST}/{add(dashboard)}").body)

    assert "What to do Look up the reason in the delivery log: " in text
    assert "Snooze" not in text


def test_navigation_marks_open_alarms_that_the_visitor_may_see(dashboard, manager, admin):
    before = [marks(manager), marks(admin)]
    add(dashboard)
    alarm = add_alarm(dashboard.world.database, None, "disk@here", name="disk of here")
    opened = [marks(manager), marks(admin)]
    admin.post(f"/team/alarms/{alarm}/snooze", {"hours": "1"})

    assert before == [[False, False], [False, False]]
    assert opened == [[True, False], [True, True]]
    assert marks(admin) == [True, False]


def test_alarms_of_the_installation_have_a_page_for_admins(dashboard, admin, manager):
    alarm = add_alarm(dashboard.world.database, None, "disk@here", name="disk of here")

    assert "Alarms of the installation" in text_of(admin.get("/team/alarms").body)
    assert "Disk almost full: disk of here" in text_of(admin.get(f"/team/alarms/{alarm}").body)
    assert manager.get("/team/alarms").status == 403
    assert admin.get(f"{LIST}/{alarm}").status == 404


def test_alarm_is_snoozed_in_the_browser(page, installation):
    with open_database(sqlite_url(installation.service.data_dir / "hookmill.db")) as database:
        add_alarm(database, installation.may.factory.id, "wh_1", name="<b>orders</b>")
        add_alarm(database, installation.may.factory.id, "wh_2", resolved_at=START_US)
    page.goto(LIST)
    expect(page.get_by_role("link", name="Alarms open")).to_be_visible()
    page.get_by_role("link", name="Authentication fails").first.click()
    page.get_by_label("Send no messages for").select_option("3 days")
    press(page, "Snooze")

    expect(page.get_by_role("status")).to_contain_text("Alarm snoozed")
    expect(page.get_by_role("link", name="Alarms", exact=True)).to_be_visible()
