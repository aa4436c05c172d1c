"""Operations on storage: the stored data, and a forecast of their growth."""

from collections.abc import Callable

from hookmill.domain.ids import RunKey
from hookmill.domain.permission import MayAdminister
from hookmill.domain.storage_forecast import Forecast, StoredData, forecast
from hookmill.management.installation import Installation
from hookmill.management.run_files import LocalPackages
from hookmill.store.storage import stored_data


class Storage:
    def __init__(
        self, installation: Installation, packages: LocalPackages | None, usable_bytes: Callable[[], int | None]
    ) -> None:
        """`usable_bytes`: how much the database may grow until deliveries are refused; None if it is not known."""
        self._installation = installation
        self._packages = packages
        self._usable_bytes = usable_bytes

    @property
    def on_postgres(self) -> bool:
        return self._installation.database_path is None

    def forecast(self, _may: MayAdminister) -> tuple[StoredData, Forecast | None, int | None]:
        """The stored data, the forecast for constant traffic, and how many bytes the database may grow.

        The forecast is None if the log is too young for one. The number is None if it is not known.
        """
        with self._installation.reading() as tx:
            # On PostgreSQL, packages are on other disks than the database.
            packages = self._packages if tx.on_sqlite else None
            data = stored_data(
                tx,
                self._installation.now(),
                path=self._installation.database_path,
                package_bytes=packages.disk_bytes if packages is not None else _no_package,
            )
        usable = self._usable_bytes()
        return data, forecast(data, usable), usable


def _no_package(_run: RunKey) -> int | None:
    return None
