"""SQLAlchemy 2 over psycopg 3: engine, pool, reflection, ORM units of work."""

from typing import Optional

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from steps import BIG, raises, run, tell


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    facts: Mapped[Optional[dict]] = mapped_column(JSONB)
    books: Mapped[list["Book"]] = relationship(back_populates="author", cascade="all")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(sa.ForeignKey("author.id"))
    author: Mapped[Author] = relationship(back_populates="books")


def engine(**options):
    return sa.create_engine("postgresql+psycopg://", pool_size=2, max_overflow=0, **options)


def orm(db):
    Base.metadata.create_all(db)
    with Session(db) as session:
        books = [Book(title=f"book {n}") for n in range(300)]
        session.add(Author(name="Ada", facts={"a": [1, None]}, books=books))
        session.commit()
        count = sa.select(sa.func.count()).select_from(Book)
        assert session.scalar(count) == 300
        session.add(Author(name="Bob"))
        session.flush()
        session.rollback()
        with session.begin_nested():
            session.add(Author(name="Cy", books=[Book(title="w" * BIG)]))

        def twice():
            with session.begin_nested():
                session.add(Author(name="Ada"))

        error = raises(exc.IntegrityError, twice)
        assert error.orig.sqlstate == "23505"
        session.commit()
        names = session.scalars(sa.select(Author.name).order_by(Author.name)).all()
        assert names == ["Ada", "Cy"], names
        cy = session.scalars(sa.select(Author).where(Author.name == "Cy")).one()
        assert len(cy.books[0].title) == BIG
        session.delete(cy)
        session.commit()


def core(db):
    table = Author.__table__
    with db.connect() as conn:
        upsert = insert(table).values(name="Ada", facts={}).on_conflict_do_update(
            index_elements=["name"], set_={"facts": {"b": 2}}).returning(table.c.facts)
        assert conn.scalar(upsert) == {"b": 2}
        conn.commit()
        raises(exc.DataError, lambda: conn.execute(sa.text("SELECT 1 / :n"), {"n": 0}))
        conn.rollback()
        walk = conn.execution_options(yield_per=50).execute(sa.text("SELECT generate_series(1, 500)"))
        assert sum(walk.scalars()) == 125250
    with db.connect().execution_options(isolation_level="SERIALIZABLE") as conn:
        assert conn.scalar(sa.text("SHOW transaction_isolation")) == "serializable"
    with db.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(sa.text("VACUUM author"))
        for n in range(20):
            assert conn.scalar(sa.text("SELECT :n * 2"), {"n": n}) == 2 * n
    found = sa.inspect(db)
    assert set(found.get_table_names()) == {"author", "book"}
    assert found.get_foreign_keys("book")[0]["referred_table"] == "author"


def timed_out(db):
    with db.connect() as conn:
        conn.execute(sa.text("SET LOCAL statement_timeout = 50"))
        sleep = sa.text("SELECT pg_sleep(600)")
        error = raises(exc.OperationalError, lambda: conn.execute(sleep))
        assert error.orig.sqlstate == "57014" and not error.connection_invalidated
        conn.rollback()
        assert conn.scalar(sa.text("SELECT 1")) == 1


def work():
    db = engine(pool_pre_ping=True)
    orm(db)
    core(db)
    timed_out(db)
    db.dispose()


def refused(action):
    error = raises(exc.DBAPIError, action)
    assert error.orig.sqlstate == "ZF001", repr(error)
    assert not error.connection_invalidated, "the pool throws a good connection away"
    return 1


def fence():
    db = engine(pool_pre_ping=True)
    Base.metadata.create_all(db)
    with Session(db) as session:
        session.add(Author(name="Ada"))
        session.commit()
        pid = session.scalar(sa.text("SELECT pg_backend_pid()"))
    tell("ready")
    tries = 0
    with Session(db) as session:
        ada = session.scalars(sa.select(Author)).one()
        ada.name = "Eve"
        tries += refused(session.commit)
        session.rollback()
        assert ada.name == "Ada"
        session.add(Author(name="Bob"))
        tries += refused(session.flush)
        session.rollback()
        # A second connection of the pool, made under the fence.
        with Session(db) as other:
            assert session.scalar(sa.select(Author.name)) == "Ada"
            assert other.scalar(sa.select(Author.name)) == "Ada"
            tries += refused(lambda: other.execute(sa.delete(Author)))
    assert sa.inspect(db).has_table("book")
    tries += refused(lambda: Base.metadata.drop_all(db))
    tell(tries)
    with Session(db) as session:
        session.add(Author(name="Bob", books=[Book(title="one")]))
        session.scalars(sa.select(Author).where(Author.name == "Ada")).one().name = "Eve"
        session.commit()
        names = session.scalars(sa.select(Author.name).order_by(Author.name)).all()
        assert names == ["Bob", "Eve"], names
    with db.connect() as one, db.connect() as two:
        pids = [conn.scalar(sa.text("SELECT pg_backend_pid()")) for conn in (one, two)]
    assert pid in pids, (pid, pids)
    db.dispose()


run(work, fence)
