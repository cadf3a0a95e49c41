# METADATA
# title: Create a ticket (ticket.create)
# description: |
#   Arguments {queue, title, body, priority}. Snapshot {exists, open, open_tickets, most_tickets} of the queue. Read
#   {tickets: [{queue, title, priority}]}: those that carry the effect key.
# authors:
# - kblockd
package kblock.actions.create_ticket

import data.kblock.shared.tiers
import rego.v1

# METADATA
# description: Where agents may write, and who answers for what is urgent there.
queues := {"billing": ["finance"], "it": ["operations"], "support": ["operations"]}

decision := {"refusals": refusals, "tier": tier}

refusals contains {"code": "QUEUE", "message": "agents may not write into this queue"} if not known_queue

known_queue if queues[input.args.queue]

tier := tiers.allowed("TICKET", "tickets that page nobody may be created") if {
	input.principal.kind in {"agent", "service"}
	input.args.priority in {"low", "normal", "high"}
} else := tiers.approved_by(1, queues[input.args.queue], "PAGES", "urgent tickets page a person") if {
	input.principal.kind == "agent"
	input.args.priority == "urgent"
} else := tiers.denied

problems contains {"code": "QUEUE_CLOSED", "message": "the queue does not exist or takes no tickets"} if {
	not queue_open
}

problems contains {"code": "QUEUE_FULL", "message": "the queue has as many open tickets as it may have"} if not room

queue_open if {
	input.snapshot.exists == true
	input.snapshot.open == true
}

room if {
	is_number(input.snapshot.open_tickets)
	is_number(input.snapshot.most_tickets)
	input.snapshot.open_tickets < input.snapshot.most_tickets
}

verification := {"violations": violations, "shown": shown}

tickets := input.read.tickets if is_array(input.read.tickets)

violations contains {"code": "DUPLICATE", "message": "more than one ticket was created"} if count(tickets) > 1

violations contains {"code": "WRONG_TICKET", "message": "the ticket has another queue or title than agreed"} if {
	some ticket in tickets
	not agreed(ticket)
}

agreed(ticket) if {
	ticket.queue == input.args.queue
	ticket.title == input.args.title
}

# METADATA
# description: Triage may raise or lower the priority of a ticket at once; that is tolerated.
shown := "expected" if {
	tickets[0].priority == input.args.priority
} else := "tolerated" if {
	count(tickets) == 1
} else := ""

cautions contains {"code": "PAGES", "message": "a second page is worse than a late one"} if {
	input.args.priority == "urgent"
}
