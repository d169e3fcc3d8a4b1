"""Weir's AMQP 0-9-1 beside the real RabbitMQ: both play the same scenarios, and every difference counts.

* `protocol`, `values`, `client`: frames, methods and tables, and a client that hides nothing that comes.
* `rabbitmq`: a RabbitMQ of one's own, started and stopped.
* `scenario`: what a scenario is; `play` gives it to one broker and notes every answer; `knowledge` is what a client
  knows meanwhile.
* `generate`: scenarios from a seed, made by `world` of what `vocabulary` has.
* `byhand`, `raw_frames`: scenarios that somebody thought of.
* `trial`: one scenario on both, again and slowly where they differ.
* `compare`: what two brokers answered, made comparable, and where it differs; `differences` lists what may.
* `minimise`: the shortest scenario that still shows a difference.
* `coverage`: which methods, arguments and outcomes were met, of all there are.
* `lies`: answers changed on purpose, to see that they are found.
"""
