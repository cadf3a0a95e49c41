package kblock.actions.create_ticket_test

import data.kblock.shared.samples_test as samples
import rego.v1

ticket := {"id": "T-1", "queue": "support", "title": "Printer on fire", "priority": "normal"}

base := samples.call(
	"ticket.create",
	"production",
	{"queue": "support", "title": "Printer on fire", "body": "It burns.", "priority": "normal"},
	{"exists": true, "open": true, "open_tickets": 99, "most_tickets": 100},
	{"tickets": [ticket]},
)

changed(path, value) := samples.changed(base, path, value)

urgent(queue) := samples.changed(changed("/args/priority", "urgent"), "/args/queue", queue)

test_tickets_that_page_nobody_are_allowed if {
	every priority in ["low", "normal", "high"] {
		document := changed("/args/priority", priority)
		samples.effect(document) == ["allow", 0, ["TICKET"]]
		samples.effect(samples.posing(document, "service")) == ["allow", 0, ["TICKET"]]
		samples.effect(samples.posing(document, "person")) == samples.denied
	}
}

test_urgent_tickets_need_who_answers_for_the_queue if {
	every queue, role in {"billing": "finance", "it": "operations", "support": "operations"} {
		samples.effect(urgent(queue)) == ["require_approval", 1, ["PAGES"]]
		samples.roles(urgent(queue)) == [role]
	}
	samples.effect(samples.posing(urgent("support"), "service")) == samples.denied
	samples.effect(changed("/args/priority", "at once")) == samples.denied
}

test_other_queues_are_refused if {
	samples.effect(changed("/args/queue", "board")) == ["deny", 0, ["QUEUE"]]
	samples.effect(changed("/args/queue", null)) == ["deny", 0, ["QUEUE"]]
}

test_the_queue_takes_a_ticket if samples.problems(base) == set()

test_a_queue_that_is_closed_or_missing if {
	samples.problems(changed("/snapshot/open", false)) == {"QUEUE_CLOSED"}
	samples.problems(changed("/snapshot/exists", false)) == {"QUEUE_CLOSED"}
}

test_a_queue_that_is_full if {
	samples.problems(changed("/snapshot/open_tickets", 100)) == {"QUEUE_FULL"}
	samples.problems(changed("/snapshot/open_tickets", null)) == {"QUEUE_FULL"}
	samples.problems(changed("/snapshot/most_tickets", "many")) == {"QUEUE_FULL"}
	samples.problems(samples.without(base, "/snapshot/most_tickets")) == {"QUEUE_FULL"}
}

read(rows) := changed("/read", {"tickets": rows})

test_the_one_ticket if samples.verdict(base) == samples.expected

test_triage_may_change_the_priority if {
	samples.verdict(read([object.union(ticket, {"priority": "high"})])) == samples.tolerated
}

test_a_ticket_that_is_not_there_yet if {
	samples.verdict(read([])) == samples.unseen
	every value in [null, {}, [], {"tickets": null}, {"tickets": 1}, {"tickets": "T-1"}] {
		samples.verdict(changed("/read", value)) == samples.unseen
	}
}

test_two_tickets if samples.verdict(read([ticket, ticket])) == ["prohibited", ["DUPLICATE"]]

test_another_ticket if {
	every key, value in {"queue": "it", "title": "Printer off"} {
		samples.verdict(read([object.union(ticket, {key: value})])) == ["prohibited", ["WRONG_TICKET"]]
	}
}

test_a_page_is_not_repeated_by_itself if {
	samples.recovery(base) == samples.retry
	samples.recovery(urgent("support")) == ["manual", ["PAGES"]]
}
