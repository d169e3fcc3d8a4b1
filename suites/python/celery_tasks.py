"""The tasks of the Celery check: imported by its worker processes and by the check itself."""

import os
import time

from celery import Celery

app = Celery(
    "celery_tasks",
    broker=f"amqp://guest:guest@{os.environ.get('SUITE_AMQP')}//",
    backend=os.environ.get("CELERY_CHECK_BACKEND"),
)
app.conf.update(
    task_default_queue=os.environ.get("CELERY_CHECK_QUEUE", "celery"),
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=2,
    broker_connection_retry_on_startup=True,
    broker_connection_retry=True,
    broker_connection_max_retries=None,
    broker_transport_options={"confirm_publish": True, "interval_start": 0.1, "interval_step": 0.1, "interval_max": 0.5},
    result_chord_join_timeout=30,
)


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def now():
    return time.time()


@app.task(bind=True, max_retries=5)
def succeeds_on_try(self, number):
    if self.request.retries + 1 < number:
        raise self.retry(countdown=0.1)
    return self.request.retries + 1


@app.task
def slow(seconds):
    time.sleep(seconds)
    return os.getpid()
