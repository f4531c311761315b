"""A worker's side of a training job."""
from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_ssize_t, c_uint64, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Union

from . import _structs as structs
from . import generations, jobs, launchers, rounds, run_id, state_file
from . import shares as shares_of
from ._library import error_of, library, text_list
from .arrays import Borrowed
from .counted import counted_of
from .errors import DeadlineExceeded, Error, FailedPrecondition, NoMemory, invalid, spelled
from .facts import Members, Shard, Stats, Welcome, values
from .handle import Handle
from .model import Arrays, Model, find_name
from .param import BF16, F16, TAGS, Param
from .texts import Settings, either, pairs, rule_list
from .ticket import SLICE, Request, Ticket, late, waited
from .warned import warn_once

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NOTICE = ctypes.CFUNCTYPE(None, c_ssize_t, c_char_p)
_SHARED, _OWN = 0, 1                    # enum pd_stream
_SCALARS = 16                           # most scalars of a push
_UNCONNECTED = b"not connected now"      # part of the error of a call that waits without a connection
_WARNING = "warning of the server: "     # begin of a notice
ANY_RANK = -1                           # PD_ANY_RANK: the server chooses the rank
_FEEDBACK: dict[bool | str, int] = {True: 0, False: 1, "carry": 2}      # as enum pd_feedback_mode
_FORMS = ("train", "eval")               # enum pd_weights_form
_RESUME = {None: 0, True: 1, False: 2}  # enum pd_resume
_WORKER_STATE_BYTES = 1 << 20           # of the longest one
_ADDRESS = 320                          # bytes of the longest address, as text
Path = Union[str, "os.PathLike[str]"]   # of a file with keys


def default_url(world_size: int | None = None, rank: int | None = None) -> str:
    """Returns the address of the server where none is given: $PARAMD_URL, else the local daemon of this run."""
    given = os.environ.get("PARAMD_URL")
    if given:
        return given
    from . import local_daemon

    return local_daemon.default_url(world_size, rank)


def local_state_dir() -> str | None:
    """Returns the directory for the checkpoints of this run's local daemon; None: it makes none."""
    from . import local_daemon

    return local_daemon.state_dir()


def path_bytes(path: Path | None) -> bytes | None:
    """Returns a path as the C library takes it."""
    return os.fsencode(path) if path is not None else None


def _file_variables(**files: Path | None) -> dict[str, str]:
    """Returns the variables of the environment that name files with keys, such as PARAMD_CA_FILE. None: not given."""
    return {f"PARAMD_{kind}_FILE": os.fsdecode(path) for kind, path in files.items() if path is not None}


class Client:
    """A connection to a parameter server, as one worker of a job.

    url: address of the server, "tcp://host:port", "tls://host:port" or "unix:///path"; several are separated by commas.
        Servers that share the job are separated by blanks, or written as "tcp://node{0..3}:7070". None: $PARAMD_URL,
        else the local daemon of this run.
    job: name of the job. None: $PARAMD_JOB, else the id of the run that a launcher gives, else a name that no other run
        has. A second client of the program without a name has a job of its own, NAME.2 and so on. If the program has a
        client of the same name and rank, that one leaves the job for good, and this one begins it anew.
    rank, world_size: this worker's number and the number of workers. None: those that paramd.launchers finds: $RANK and
        $WORLD_SIZE, torch.distributed, jax.distributed, the variables of MPI and srun; else 0 of 1. rank "any": the
        server chooses the lowest rank that is free, and world_size (None: 1) is the number of workers that the job
        begins with. A process without a launcher does so where max_workers is above 1 and the job has a name that
        others can know ($PARAMD_JOB, job=).
    rules: optimizer rules "GLOB OPTIMIZER name=value ..."; the first whose glob matches a parameter's name wins.
        None: "* sgd".
    options: options of the job, as a mapping or as "name=value" texts.
    label: names this worker for operators. None: "host:pid".
    deadline: most seconds that a call waits.
    checksum: adds a checksum to every frame.
    impatient: tries every address once instead of waiting for a server that is not up.
    shared_memory: False sends tensors through the socket even on the server's machine.
    window: number of steps whose pushes the client keeps, until they are durable. If the server goes back to a
        checkpoint that is not older, the client sends them again by itself, and the program does not notice. It takes
        memory for as many steps' gradients. 0: none, and every return to a checkpoint raises Rewind.
    token_file, ca_file, cert_file, key_file: files of a tls:// address: this worker's token; the authorities that sign
        the server's certificate; this worker's certificate and its key. They are read for each connection. None:
        $PARAMD_TOKEN_FILE, $PARAMD_CA_FILE (else the system's authorities), $PARAMD_CERT_FILE, $PARAMD_KEY_FILE.
    notice: called with one sentence for the user. None: the server's warnings about the job become a ParamdWarning, and
        other notices are printed to standard error.
    resume: True: goes on with a job of this name that the server has, also in the place of a process that lives. False:
        begins anew, unless a worker is connected. None: $PARAMD_RESUME=1 or 0, else processes of the same run go on
        with their job, and so does a process that comes back in the place of one that was lost.
    joins: rank 0 alone creates the job, and a client of another rank waits for it.
    group: number of this worker's group, from 1: ranks of one group count together in a step, or not at all, such as
        those of an FSDP replica. None: this rank is a group of its own.
    shares: number of shares of the data that this worker uses in a step: see `take_share`. 0: none.
    feedback: what happens to that part of a gradient which quantizing (Param.push_dtype) rounds away. True: it is added
        to the next gradient, once the push has counted. "carry": so is all of a push that was late. False: it is lost.
    rules_of_rounds: min_workers, max_workers, on_lost_worker, reconnect_grace, quorum, grace, staleness, on_stale,
        damping, weight_cap, rounds: whom a step waits for, and what happens when workers come and go. See
        help(paramd.rounds).

    DeadlineExceeded: no server answered in time. Unavailable: an impatient client was not answered at once.
    FailedPrecondition: the job has another configuration, or is another run's; or the environment and a process group
    tell different ranks. AlreadyExists: another process has this rank. InvalidArgument: an option or rule is not valid.
    Calls from several threads are safe. After fork(), every call in the child raises.
    """

    def __init__(self, url: str | None = None, job: str | None = None, *, rank: int | str | None = None,
                 world_size: int | None = None, rules: str | Iterable[str] | None = None,
                 options: Settings = None, label: str | None = None, deadline: float = 120.0,
                 checksum: bool = False, impatient: bool = False, shared_memory: bool = True, window: int = 0,
                 token_file: Path | None = None, ca_file: Path | None = None, cert_file: Path | None = None,
                 key_file: Path | None = None, notice: Callable[[str], None] | None = None,
                 resume: bool | None = None, joins: bool = False, group: int | None = None, shares: int = 0,
                 feedback: bool | str = True, **rules_of_rounds: Unpack[rounds.Rules]) -> None:
        rounds.check_names("Client", rules_of_rounds)
        option_texts = rounds.options(rules_of_rounds, options)
        number, of, any_rank = self._chosen(rank, world_size, job, option_texts)
        if (number is None) != (of is None):
            raise invalid(f"expected both rank and world_size or neither, got rank {rank} and world_size {world_size}")
        if resume not in _RESUME:
            raise invalid(f"resume: expected None, True or False, got {resume!r}")
        if number is not None and of is not None and not 0 <= number < of:
            raise invalid(f"rank {number} of {of}: expected 0 <= rank < world_size")
        for name, text in (("url", url), ("job", job)):
            if text is not None and not text:
                raise invalid(f"{name}: expected a text that is not empty; None stands for the default")
        if not deadline > 0:            # the C library would take 0 for its default
            raise invalid(f"deadline: expected more than 0 seconds, got {deadline}")
        if not 0 <= window < 1 << 32:
            raise invalid(f"window: expected a number of steps from 0 on, got {window}")
        if group is not None and not 0 < group < 1 << 32:
            raise invalid(f"group: expected a number from 1 on, got {group}")
        shares_of.check(shares)
        if feedback not in _FEEDBACK:
            raise invalid(f"feedback: expected True, False or \"carry\", got {feedback!r}")
        run = run_id.find(number, of)
        self.url = url or default_url(of, number)
        self.job = ""
        self.deadline = float(deadline)
        self.generation = 0 if any_rank else generations.find(run.seat)
        # Whether pushes say for how long this worker can do without the answer.
        self.sends_patience = rounds.value("grace", option_texts) == "auto"
        self._variables = {"PARAMD_URL": self.url, **_file_variables(  # the environment in which paramctl runs
            TOKEN=token_file, CA=ca_file, CERT=cert_file, KEY=key_file)}
        self.taken = 0                          # shares that were taken since the last push
        # Arrays by name in which weights came last: a step of `share_below` puts them there. None: not needed.
        self.landing: dict[str, Any] | None = {} if shares > 0 else None
        self.requests: set[Request] = set()     # those that the library may still work on
        self.watchers: dict[Any, Any] = {}      # of event loops
        self._orphans: deque[Request] = deque() # requests whose tickets nobody holds
        self._notices: list[bytes] = []
        self._notice = notice
        self._staged, self._staging_told = 0, False
        self._lock = threading.Lock()           # guards the counters
        self._waits = threading.RLock()         # one call at a time that waits for something else than a ticket
        self._held: dict[str, Any] = {}         # arrays of such calls that were interrupted
        self._model: Model | None = None
        self._start_again: Callable[[], object] | None = None   # starts a local daemon that was killed
        self._seat: jobs.Seat | None = None     # once the job is joined
        # list.insert is no Python code: no signal handler can raise in it, where ctypes would swallow the exception
        self._callback = _NOTICE(self._notices.insert)
        rule_texts = rule_list(rules)
        options_of = functools.partial(
            structs.Options,
            urls=self.url.encode(), options=text_list(option_texts),
            rules=text_list(rule_texts) if rule_texts is not None else None,
            label=label.encode() if label else None, deadline=self.deadline, checksum=checksum, impatient=impatient,
            notice=ctypes.cast(self._callback, c_void_p), no_shared_memory=not shared_memory, join_later=True,
            slice=SLICE, window=window, token_file=path_bytes(token_file), ca_file=path_bytes(ca_file),
            cert_file=path_bytes(cert_file), key_file=path_bytes(key_file), group=group or 0,
            generation=self.generation, shares=shares, feedback=_FEEDBACK[feedback])
        # A local daemon may end, idle, between the look for it and this join: then another look starts a new one.
        look_again = None if url or os.environ.get("PARAMD_URL") else lambda: default_url(of, number)
        if resume and job is None and not run_id.is_named(run):
            raise invalid("resume=True: expected the name of the job to go on with (job= or PARAMD_JOB), and this run "
                          "has a new one")
        seat = jobs.Seat(self.url, run_id.job_name(run) if job is None else job,
                         ANY_RANK if any_rank else run.seat.rank)
        with jobs.named(seat) if job is None else nullcontext(job) as self.job:
            try:
                self._take(seat._replace(job=self.job), run, options_of, resume, joins, look_again)
            except DeadlineExceeded as error:
                raise (error if job is not None else run_id.explained(error, run)) from None

    @staticmethod
    def _chosen(rank: int | str | None, world_size: int | None, job: str | None,
                options: list[str]) -> tuple[int | None, int | None, bool]:
        """Returns rank and number of workers, and whether the server chooses the rank.

        InvalidArgument: it is to choose it, and no other process could know the name of the job.
        """
        if isinstance(rank, str):
            if rank != "any":
                raise invalid(f'rank: expected a number or "any", got {rank!r}')
            if job is None and not os.environ.get("PARAMD_JOB"):
                raise invalid('rank="any": other workers need the name of the job: give job=, or set PARAMD_JOB')
            return 0, world_size or 1, True
        most = rounds.value("max_workers", options)
        if rank is not None or world_size is not None or most in (None, "1", "default"):
            return rank, world_size, False
        named = job is not None or bool(os.environ.get("PARAMD_JOB"))
        return (0, 1, True) if named and not launchers.seat().source else (None, None, False)

    def _take(self, seat: jobs.Seat, run: run_id.Run, options_of: Callable[..., structs.Options], resume: bool | None,
              joins: bool, look_again: Callable[[], object] | None) -> None:
        """Joins the job as one of its ranks, in the place of an earlier client of this program if there is one."""
        opening = jobs.JOINING
        if seat.rank != ANY_RANK:
            opening = jobs.prepare(seat, bool(resume), self.generation)
        if resume is None and opening.anew:
            resume = False
        launch = run.launch + (f"#{opening.generation}" if opening.generation > 1 else "") if run.launch else ""
        self._join(options_of(job=seat.job.encode(), rank=seat.rank, world_size=run.seat.of, run=launch.encode(),
                              resume=_RESUME[resume], joins=joins and seat.rank > 0), look_again)
        self._seat = seat
        jobs.note_taken(seat, self)
        if seat.rank == 0 and resume is None and self._notice is None and not opening.known and not launch:
            self._tell_of_resumption()

    def _join(self, options: structs.Options, look_again: Callable[[], object] | None) -> None:
        self.handle = self._open(options)
        self._finalizer = weakref.finalize(self, self.handle.close)
        try:
            self.repeat(library().pd_client_join, between=look_again)
            self._start_again = look_again if look_again is not None and local_state_dir() is not None else None
        except BaseException:
            self.close()
            raise

    def _tell_of_resumption(self) -> None:
        """Warns that the job has steps of an earlier process, where it may be another one than the user means."""
        welcome = self.welcome
        expected = os.environ.get("PARAMD_RESUME") or launchers.is_restarted(os.environ)
        if welcome.created or welcome.step == 0 or expected:
            return
        warnings.warn(f"job {self.job} is at step {welcome.step}: this process goes on from there, with the job's "
                      "weights, in the place of an earlier one. To begin anew, give resume=False (PARAMD_RESUME=0) or "
                      "another name (job=, PARAMD_JOB); resume=True (PARAMD_RESUME=1) says that this is meant",
                      stacklevel=2)

    @staticmethod
    def _open(options: structs.Options) -> Handle:
        pointer, error = c_void_p(), structs.Error()
        if library().pd_client_open_sized(byref(pointer), byref(options), ctypes.sizeof(options), byref(error)) != 0:
            raise error_of(error)
        return Handle(pointer)

    # ---- calls that wait ----

    def repeat(self, function: Any, *arguments: Any, between: Callable[[], object] | None = None,
                seconds: float | None = None) -> None:
        """Makes a call that waits, in slices, until it is done or `seconds` (None: the deadline) are over. Between
        slices Python handles signals, and `between` is called."""
        most = self.deadline if seconds is None else seconds
        end = time.monotonic() + most
        with self._waits:
            while True:
                error = structs.Error()
                with self.handle as pointer:
                    code = function(pointer, *arguments, byref(error))
                self.give_notices()
                if code == 0:
                    return
                if not waited(error):
                    raise self.error_of(error)
                if time.monotonic() >= end:
                    raise late(error, most)
                if between is not None:
                    between()
                self.revive(error)

    def revive(self, error: structs.Error) -> None:
        """Starts the local daemon of this run again if it was killed and has left checkpoints. error: the one of a call
        that waits."""
        if self._start_again is not None and _UNCONNECTED in error.text:
            self._start_again()

    def give_notices(self) -> None:
        """Gives the notices that the library has left to the user."""
        while self._notices:
            text = spelled(self._notices.pop().decode("utf-8", "replace"))
            if self._notice is not None or not text.startswith(f"job {self.job} is at step "):
                self._tell(text)            # else _tell_of_resumption does so, where it may surprise

    def _tell(self, text: str) -> None:
        if self._notice is not None:
            self._notice(text)
        elif text.startswith(_WARNING):
            warn_once(text[len(_WARNING):])
        else:
            print(f"paramd: {text}", file=sys.stderr)

    def error_of(self, error: structs.Error) -> Error:
        """Returns the exception for an error of the library, with the name of the parameter that its text names."""
        text = error.text.decode("utf-8", "replace")
        return error_of(error, find_name(text, self.names))

    # ---- the model ----

    def declare(self, params: Arrays | Iterable[Param]) -> None:
        """Declares all parameters of the model, once, and waits until the declarations of all ranks fit together.

        params: a mapping from names to arrays, whose shapes and element types are declared; or any number of Param.
            Those without elements (a dimension is 0) stay with this process: they have no gradients and no steps.

        InvalidArgument: a name, shape, range or hyperparameter is not valid. FailedPrecondition: the declaration
        differs from that of another rank. ResourceExhausted: a limit of the server.
        """
        model = Model(params)
        before, self._model = self._model, self._model or model
        declarations = model.declarations()
        if not model.params and model.hollow:
            return                      # nothing travels
        try:
            self.repeat(library().pd_client_declare_sized, declarations, len(model.params),
                         ctypes.sizeof(structs.Param))
        except Error as error:
            self._model = before
            error.parameter = error.parameter or find_name(error.text, model.names)
            raise

    @property
    def model(self) -> Model:
        """The declared parameters. FailedPrecondition: none are declared yet."""
        if self._model is None:
            raise FailedPrecondition(FailedPrecondition.code, "no parameters are declared yet: call declare first")
        return self._model

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the declared parameters, in order."""
        return self._model.names if self._model is not None else ()

    def init(self, weights: Arrays) -> None:
        """Sends this rank's initial weights if the server waits for them, then receives the job's weights into the
        same arrays. Every rank calls it. weights: a writable array for each declared parameter."""
        self._with_weights("init", library().pd_client_init, weights)

    def restart(self, weights: Arrays) -> None:
        """Starts the job anew after DataLoss, from the weights that the workers hold. Every rank calls it, and goes on
        at `step_of`. The optimizer's state begins anew. Errors: pd_client_restart in include/paramd/client.h."""
        self._with_weights("restart", library().pd_client_restart, weights)

    def rewind(self, weights: Arrays) -> None:
        """Goes on after Rewind: receives the weights of the server's checkpoint into the same arrays. Then `step_of`
        has the checkpoint's step, the optimizer's state is that of the checkpoint, and
        `get_worker_state` returns this rank's worker state. The program takes the steps after it again.

            except paramd.Rewind:
                client.rewind(weights)
                step = client.step_of("w")

        FailedPrecondition: the server has not gone back. Rewind: it has gone back once more; call it again. DataLoss:
        it has no checkpoint of the job; `restart` goes on.
        """
        self._with_weights("rewind", library().pd_client_rewind, weights)

    def _with_weights(self, name: str, function: Any, weights: Arrays) -> None:
        pointers, arrays = self.model.all_weights(weights)
        if not self.names:
            return                      # no parameter has elements
        self._note_landing(weights)
        self.taken = 0
        self._hold(name, pointers, arrays, function, pointers)
        for array in arrays:
            if array.write_back is not None:
                array.write_back()

    def _hold(self, name: str, memory: Any, arrays: list[Borrowed], function: Any, *arguments: Any) -> None:
        """Makes a call that waits, and holds the arrays that it borrows until it has ended."""
        with self._waits:
            before = self._held.get(name)
            if before is not None and bytes(before[0]) != bytes(memory):
                raise FailedPrecondition(FailedPrecondition.code, f"an earlier call of {name} was interrupted and is "
                                         "still under way: call it again with the same arrays")
            self._held[name] = memory, arrays
            try:
                self.repeat(function, *arguments)
            except Error as error:
                if not error.text.startswith("waited"):
                    self._held.pop(name, None)
                raise
            del self._held[name]
        self._count_staged(arrays)

    # ---- steps ----

    def push(self, grads: Arrays, *, weight: float | None = None, presummed: bool = False,
             hypers: Mapping[str, Any] | None = None, scalars: Mapping[str, float] | None = None,
             worker_state: bytes | None = None, replaces: int = 0, note: bytes | None = None,
             patience: float = 0.0, again: bool = False) -> Ticket:
        """Pushes gradients, without weights in return. See push_pull."""
        return self._push(library().pd_client_push_sized, grads, None, either(worker_state, note), scalars,
                          weight=weight, presummed=presummed, hypers=hypers, replaces=replaces, patience=patience,
                          again=again)

    def push_pull(self, grads: Arrays, weights: Arrays, *, weight: float | None = None, presummed: bool = False,
                  hypers: Mapping[str, Any] | None = None, scalars: Mapping[str, float] | None = None,
                  worker_state: bytes | None = None, replaces: int = 0, note: bytes | None = None,
                  patience: float = 0.0, again: bool = False) -> Ticket:
        """Pushes gradients, and receives the weights after the step. Returns at once; until the ticket is done, do not
        change a gradient and do not read weights.

        grads: a mapping from names to arrays; None: this rank has no gradient of the parameter in this step.
        weights: a mapping from the same names to writable arrays.
        weight: number of examples behind the gradient, for aggregate = weighted_mean and radial_mean; 0: none. None: 1.
        presummed: the gradients are sums over the examples, not means.
        hypers: hyperparameters of this step, the same on every rank.
        scalars: numbers whose means over the ranks come back in Ticket.scalars; at most 16.
        worker_state: at most 1 MiB that only this rank understands, such as its place in the data and the state of its
            random numbers after this step (paramd.worker_state makes it). A checkpoint of the step contains it: see
            `get_worker_state`. One push of a step is enough, and the last one counts.
        replaces: number of the change that the program has made by hand to the weights since the last step: see
            `replace`. 0: none.
        note: the older name of worker_state.
        patience: seconds for which this worker can do without the answer, since it still computes: in a job with
            grace="auto" the server waits no longer than that for other workers.
        again: this push repeats the last one of these parameters, whose ticket has ended with an error: the same
            gradients, for the same step. If that one has counted meanwhile, they do not count again.

        In a job whose steps do not wait for all workers (help(paramd.rounds)), the outcome LATE says that the step was
        taken without these gradients, and that they will not count. The weights are then those of Result.step, which
        may be several steps later, and the worker continues from there. So do not push these gradients again.

        InvalidArgument: an array does not fit its declaration, its parameter has a push under way, or the worker
        state is too long.
        ResourceExhausted: too many tickets are under way.
        """
        return self._push(library().pd_client_push_pull_sized, grads, weights, either(worker_state, note), scalars,
                          weight=weight, presummed=presummed, hypers=hypers, replaces=replaces, patience=patience,
                          again=again)

    def _push(self, function: Any, grads: Arrays, weights: Arrays | None, worker_state: bytes | None,
              scalars: Mapping[str, float] | None, *, weight: float | None, presummed: bool,
              hypers: Mapping[str, Any] | None, replaces: int, patience: float, again: bool) -> Ticket:
        names, items, arrays = self.model.items(grads, weights)
        numbers = _scalars(scalars or {})
        texts = text_list(pairs(hypers)) if hypers else None
        counts = (structs.ItemCount * len(names))()
        options = structs.PushOptions(weight=weight or 0.0, zero_weight=weight == 0, presummed=presummed,
                                      hypers=texts, scalars=numbers, n_scalars=len(numbers),
                                      worker_state=ctypes.cast(c_char_p(worker_state), c_void_p),
                                      worker_state_bytes=len(worker_state or b""),
                                      replaces=_change(replaces) if replaces != 0 else 0,
                                      patience_ms=_milliseconds(patience), counts=counts, again=again)
        request = Request(self, names, items, numbers, arrays, counts)
        request.settled = not names and bool(grads)
        ticket = self._start(request, function, items, len(items), byref(options), ctypes.sizeof(options))
        self._note_landing(weights or {})
        self.taken = 0
        return ticket

    def replace(self, weights: Arrays, replaces: int) -> None:
        """Replaces weights of the running job by those that the program has changed by hand since the last step. Every
        rank changes its own weights, all in the same way; then the one that `leads` calls this, and every rank gives
        the number of the change with all its pushes of the next step:

            number = hash_of(changed)
            if client.leads:
                client.replace(changed, number)
            ticket = client.push_pull(grads, weights, replaces=number)

        weights: a mapping from names to arrays; parameters that are not in it keep their weights.
        replaces: number of the change, 1 to 2^64 - 1: one that all ranks find alike, such as a hash of the new weights.

        The optimizer's state and the step stay. If the ranks' pushes of a step bring different numbers, the ticket of
        the rank that is second raises FailedPrecondition. Weights that are received (`init`, `rewind`, `restart`,
        `pull`) need no number: give 0 then. After Rewind the program replaces again what it had replaced behind the
        step that it goes back to.

        FailedPrecondition: this rank does not lead the job; a parameter is ranged; another rank has pushed with other
        weights; the server has begun the next step before all weights had come.
        InvalidArgument: a push is under way; an array does not fit its parameter; the number is 0.
        """
        _, items, arrays = self.model.items(None, weights)
        self._hold("replace", items, arrays, library().pd_client_replace, items, len(items), _change(replaces))

    def pull(self, weights: Arrays, *, min_step: int = 0, form: str = "train") -> Ticket:
        """Receives weights once at least `min_step` rounds of their parameters are closed; 0: the present weights.

        weights: a mapping from names to writable arrays.
        form: "train": the weights that gradients belong to. "eval": those to evaluate with and to save, which are
            others for schedule_free, schedule_free_sgd and gpa.
        """
        if form not in _FORMS:
            raise invalid(f"form: expected {' or '.join(map(repr, _FORMS))}, got {form!r}")
        names, items, arrays = self.model.items(None, weights)
        request = Request(self, names, items, None, arrays)
        request.settled = not names and bool(weights)
        self._note_landing(weights)
        return self._start(request, library().pd_client_pull_form, items, len(items), min_step,
                           _FORMS.index(form))

    def close_step(self, step: int) -> Ticket:
        """Ends this rank's step: parameters that it has not pushed count as without a gradient. Call it after the
        step's pushes. The ticket is done when the rounds of all parameters are closed."""
        return self._start(Request(self, [], None, None, []), library().pd_client_close_step, step)

    def _start(self, request: Request, function: Any, *arguments: Any) -> Ticket:
        self._settle_orphans()
        self._count_staged(request.arrays)
        ticket = Ticket(request)
        if request.settled:             # it names only parameters without elements
            return ticket
        self.requests.add(request)      # before the call: a signal may interrupt us right behind it
        error = structs.Error()
        with self.handle as pointer:
            code = function(pointer, *arguments, byref(request.id), byref(error))
        if code != 0:
            self.requests.discard(request)
            request.settled = True
            raise self.error_of(error)
        return ticket

    def forget(self, request: Request) -> None:
        """Notes that nobody holds the ticket of a request any more. Called by the garbage collector."""
        if not request.settled:
            self._orphans.append(request)

    def _settle_orphans(self) -> None:
        """Takes the results of requests that are done and that nobody waits for."""
        for _ in range(len(self._orphans)):
            try:
                request = self._orphans.popleft()
            except IndexError:          # another thread was quicker
                return
            if request.id.value != 0 and request.advance(1e-6) is not None:
                self._orphans.append(request)
                continue
            self.requests.discard(request)
            if request.error is not None:
                self._tell(f"a push or pull that nobody waited for has failed: {request.error}")

    def _count_staged(self, arrays: Sequence[Borrowed]) -> None:
        staged = sum(array.staged for array in arrays)
        if staged == 0:
            return
        with self._lock:
            self._staged += staged
            tell, self._staging_told = not self._staging_told, True
        if tell:
            self._tell(f"some arrays are not contiguous: {staged} bytes were copied for this call "
                       "(Client.staged counts them)")

    def _note_landing(self, weights: Arrays) -> None:
        if self.landing is not None:
            self.landing.update((name, weights[name]) for name in self.names if name in weights)

    # ---- shares of the data ----

    def take_share(self) -> int:
        """Takes the next share of the data: the number of one local batch, from which paramd.StepSampler computes the
        indices of its samples. Take as many for each step as the argument `shares` says, 1 as a rule; the answer to the
        push brings others.

        The server leases shares to workers. A share counts as used when a push of its worker counts. If the worker
        leaves or is lost before, others get the share. After a push that was late, the same share is taken again.

        In a job whose ranks all count in every step there are no leases: the share of a step is (step - 1) * world_size
        + rank, where step counts from 1.

        Unavailable: all leased shares are taken. FailedPrecondition: the argument `shares` is 0.
        """
        share, error = c_uint64(), structs.Error()
        with self.handle as pointer:
            if library().pd_client_share(pointer, byref(share), byref(error)) != 0:
                raise self.error_of(error)
        self.taken += 1
        return share.value

    def share_below(self, total: int) -> int | None:
        """Waits for a share below `total`, where those that this worker gets are past it: another worker may be lost,
        and leave shares behind. Returns None once all shares below `total` are used. Meanwhile this worker takes part
        in steps without gradients, whose weights come into the arrays that the last push_pull (init, pull, ...) had.
        See paramd.StepSampler.shares, which calls it.

        FailedPrecondition: shares are taken whose gradients are not pushed; or not every parameter had an array for
        its weights. Other errors are those of Ticket.wait.
        """
        return shares_of.below(self, total, self.take_share, self._sit_out)

    def _sit_out(self) -> bool:
        """Takes a step without a gradient. Returns whether this worker alone counted in it. Fragments take their steps
        one by one, in the order in which other workers push them: first the one that is furthest behind."""
        missing = [name for name in self.names if name not in (self.landing or {})]
        if missing or self.landing is None:
            raise FailedPrecondition(FailedPrecondition.code, f"share_below: no call had an array for the weights of "
                                     f"{missing[0] if missing else 'any parameter'}")
        fragments = self.model.fragments()
        while True:
            number = min(range(len(fragments)), key=lambda f: self.step_of(fragments[f][0]))
            names = fragments[number]
            weights = {name: self.landing[name] for name in names}
            results = self.push_pull(dict.fromkeys(names), weights).wait().values()
            if number == 0:                     # its steps use the shares
                return shares_of.was_alone(self, counted_of(results, self.members.n))

    @property
    def least_unused(self) -> int:
        """The least share that no worker has used, as the server's last answer reported: all shares of a data set with
        n shares are used once it is n or more."""
        with self.handle as pointer:
            return int(library().pd_client_least_unused(pointer))

    # ---- checkpoints ----

    def get_worker_state(self) -> tuple[int, bytes]:
        """Returns the step and the bytes of this rank's worker state (`push_pull`) that belongs to the job's present
        state: after a restart of the server that of its checkpoint, else the last one that this rank has given.
        (0, b""): there is none. In a job whose parameters were at different steps at the checkpoint, it is the last one
        that is not newer than any of them."""
        state, count, step = ctypes.create_string_buffer(_WORKER_STATE_BYTES), c_size_t(), c_uint64()
        self.repeat(library().pd_client_worker_state, state, _WORKER_STATE_BYTES, byref(count), byref(step))
        return step.value, state.raw[:count.value]

    def recall(self) -> tuple[int, bytes]:
        """The older name of get_worker_state."""
        return self.get_worker_state()

    @property
    def durable(self) -> int:
        """The durable step, as the server's last answer reported: steps up to it survive a restart of the server. 0:
        none does."""
        with self.handle as pointer:
            return int(library().pd_client_durable(pointer))

    def sync(self, step: int | None = None, timeout: float | None = None) -> None:
        """Waits until `step` is durable: until a checkpoint of this step or a later one is on the server's disk, which
        the server makes at once. With several servers: until all can go back to one such step. If some have taken a
        later one already, they wait for it on all: push all parameters of the last step before.

        step: None: the last one that this client knows of. 0: returns at once.
        timeout: most seconds; None: the client's deadline.

        FailedPrecondition: the job has no checkpoints: the server has no state_dir, or durability is none. Unavailable:
        the server's disk has failed; the error says how. DeadlineExceeded: not in time; a checkpoint that has begun is
        still written.
        """
        if step == 0:                   # no step is to become durable; the library takes 0 for the present step
            return
        wanted = min(map(self.step_of, self.names), default=0) if step is None else step
        most = self.deadline if timeout is None else timeout
        end = time.monotonic() + most
        self.repeat(library().pd_client_sync, wanted, seconds=most)
        if self.durable < wanted:       # that was the answer to an earlier call, which did not wait for it
            self.repeat(library().pd_client_sync, wanted, seconds=max(end - time.monotonic(), 0.0))

    # ---- ranks ----

    def barrier(self) -> None:
        """Waits until every rank of the job has called it as often as this rank."""
        self.repeat(library().pd_client_barrier)

    def leave(self) -> None:
        """Leaves the job for good. Afterwards only `close` may be called."""
        self.repeat(library().pd_client_leave)
        if self._seat is not None:
            jobs.note_left(self._seat, self)

    def close(self) -> None:
        """Ends the connection without leaving the job: the server waits for this rank to come back. Tickets that are
        not done are forgotten. If memory of `buffer` is still used, the connection ends with it."""
        self._finalizer()
        if self._seat is not None:
            jobs.note_closed(self._seat, self)
        if self.handle.closed:
            self._held.clear()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if kind is None and not self.handle.closed:
                self.leave()
        finally:
            self.close()

    # ---- facts ----

    def step_of(self, name: str) -> int:
        """Returns how many rounds of the parameter are closed, as the server's last answer reported. For a parameter
        without elements: as many as of all others."""
        if name in self.model.hollow:
            return min(map(self.step_of, self.names), default=0)
        with self.handle as pointer:
            return int(library().pd_client_step(pointer, self.model.number(name)))

    def note_of(self, name: str) -> str:
        """Returns the optimizer's note on the parameter's declaration; "" if there is none."""
        with self.handle as pointer:
            return str(library().pd_client_note(pointer, self.model.number(name)).decode("utf-8", "replace"))

    @property
    def must_init(self) -> bool:
        """Whether the server waits for this rank's initial weights."""
        with self.handle as pointer:
            return bool(library().pd_client_must_init(pointer))

    @property
    def welcome(self) -> Welcome:
        """The server's answer when this client last joined the job."""
        with self.handle as pointer:
            return Welcome(**values(library().pd_client_welcome(pointer).contents))

    @property
    def members(self) -> Members:
        """The members of the job, as the server's last answer to a push or pull told them. In a job whose workers
        neither come nor go: world_size, rank and 0."""
        n, index, epoch = c_int(), c_int(), c_uint64()
        with self.handle as pointer:
            library().pd_client_members(pointer, byref(n), byref(index), byref(epoch))
        return Members(n.value, index.value, epoch.value)

    @property
    def shards(self) -> list[Shard]:
        """Where the job is: the server of each shard; one entry if the job has one server. Entries change when a shard
        moves to another server."""
        url, tenure = ctypes.create_string_buffer(_ADDRESS), c_uint64()
        shards: list[Shard] = []
        with self.handle as pointer:
            while library().pd_client_shards(pointer, len(shards), url, _ADDRESS, byref(tenure)) > len(shards):
                shards.append(Shard(url.value.decode("utf-8", "replace"), tenure.value))
        return shards

    @property
    def leads(self) -> bool:
        """Whether this worker leads its job: it calls `replace`, and gets the server's warnings about the job. That is
        rank 0; in a job where members come and go, the lowest member that is connected, as the last answer told."""
        with self.handle as pointer:
            return bool(library().pd_client_leads(pointer))

    @property
    def rank(self) -> int:
        """This worker's number, from 0."""
        return self.welcome.rank

    @property
    def world_size(self) -> int:
        """The number of workers that the job has begun with."""
        return self.welcome.world_size

    @property
    def stats(self) -> Stats:
        """What the client has counted so far."""
        counted = structs.Stats()
        with self.handle as pointer:
            library().pd_client_count_sized(pointer, byref(counted), ctypes.sizeof(counted))
        return Stats(**values(counted))

    @property
    def staged(self) -> int:
        """Bytes that were copied so far because arrays were not contiguous."""
        return self._staged

    def fileno(self) -> int:
        """Returns a descriptor that is readable when a ticket is done (pd_client_fd). Read 8 bytes, then ask
        Ticket.done. Coroutines that await tickets in asyncio read it themselves."""
        with self.handle as pointer:
            fd = int(library().pd_client_fd(pointer))
        if fd < 0:
            raise OSError("the system gives no event descriptor")
        return fd

    # ---- memory and random numbers ----

    def buffer(self, name: str) -> memoryview:
        """Returns memory for this rank's gradient of a parameter, flat and zero at first. Over a Unix socket the
        server reads a gradient there without a copy. After a push has failed the server may still do so: call this
        again, which returns other memory meanwhile.

        The view has the format "f" for float32, "e" for float16 and "B" (bytes) for bfloat16. Arrays on it:
        `numpy.frombuffer(view, "f4").reshape(shape)`, `torch.frombuffer(view, dtype=torch.bfloat16)`. While it is used,
        the connection stays open. NoMemory: the system gives no shared memory.
        """
        if name in self.model.hollow:
            return memoryview(b"")
        param = self.model.params[self.model.number(name)]
        tag = TAGS[param.dtype]
        with self.handle as pointer:
            address = library().pd_client_buffer(pointer, self.model.number(name))
            if address is None:
                raise NoMemory(NoMemory.code, "the system gives no shared memory", name)
            block = self.handle.memory(address, param.elements * (2 if tag in (F16, BF16) else 4))
        view: Any = memoryview(block).cast("B")
        return view if tag == BF16 else view.cast("e" if tag == F16 else "f")  # type: ignore[no-any-return]

    def uniform(self, shape: int | Sequence[int], key: int, first: int = 0, shared: bool = True) -> Any:
        """Returns random numbers from [0, 1) as a float32 array, from the job's seed, `key` and their index alone.
        first: index of the first number. shared: the same numbers on all ranks; else each rank has its own."""
        return self._draw(library().pd_client_uniform, shape, key, first, shared)

    def normal(self, shape: int | Sequence[int], key: int, first: int = 0, shared: bool = True) -> Any:
        """Returns normally distributed random numbers as a float32 array. See `uniform`."""
        return self._draw(library().pd_client_normal, shape, key, first, shared)

    def _draw(self, function: Any, shape: int | Sequence[int], key: int, first: int, shared: bool) -> Any:
        import numpy

        out = numpy.empty(shape, numpy.float32)
        with self.handle as pointer:
            function(pointer, _SHARED if shared else _OWN, key, first, out.ctypes.data_as(POINTER(c_float)), out.size)
        return out

    # ---- files ----

    def export_state(self, path: str | os.PathLike[str]) -> int:
        """Writes the job's weights and full optimizer state to a safetensors file, by paramctl. An old file of that
        name is replaced. Returns the step of the state. One rank calls it, after the step's tickets are done."""
        self.handle.check()
        return state_file.export_state(self._variables, self.job, os.fspath(path))

    def import_state(self, path: str | os.PathLike[str], partial: bool = False) -> None:
        """Puts the optimizer state of a safetensors file into the job, by paramctl. One rank calls it, between two
        steps of the job. For a new job that is after `init`, which was given the weights of the file, and with the
        option start_step, which is the file's step. Other ranks need not wait for it, if rank 0 calls it before its
        next push: no step is taken before that. A parameter that has seen no gradient needs only its counter
        "NAME.step", 0. In a job with checkpoints `sync` then waits until the state is on the disk.

        partial: names that the job does not know are skipped, and it keeps the state that the file does not have.
        InvalidArgument: this is no such file, or its names are not those of the job's state; nothing has changed.
        """
        self.handle.check()
        state_file.import_state(self._variables, self.job, os.fspath(path), partial)


def _change(number: int) -> int:
    """Returns the number of a change by hand. InvalidArgument: it has no such value."""
    if not 0 < number < 1 << 64:
        raise invalid(f"replaces: expected the number of a change, from 1 to 2^64 - 1, got {number}")
    return number


def _milliseconds(seconds: float) -> int:
    """Returns a time in ms, as the library takes it. InvalidArgument: it is negative, or not a number."""
    if not seconds >= 0:
        raise invalid(f"patience: expected seconds from 0 on, got {seconds}")
    return int(min(seconds * 1000, (1 << 32) - 1))


def _scalars(given: Mapping[str, float]) -> Any:
    if len(given) > _SCALARS:
        raise invalid(f"expected at most {_SCALARS} scalars, got {len(given)}")
    array = (structs.Scalar * len(given))()
    for to, (name, value) in zip(array, given.items()):
        to.name, to.value = name.encode(), float(value)
    return array
