package kblock.actions.send_email_test

import data.kblock.shared.samples_test as samples
import rego.v1

message := {"id": "m-1", "to": "ann@customer.example", "subject": "Your order", "state": "delivered"}

base := samples.call(
	"email.send",
	"production",
	{"sender": "support@acme.example", "to": "ann@customer.example", "subject": "Your order", "body": "It is on its way."},
	{"address": "ann@customer.example", "suppressed": false, "consented": true, "sent_today": 2},
	{"messages": [message]},
)

changed(path, value) := samples.changed(base, path, value)

to(address) := samples.changed(changed("/args/to", address), "/snapshot/address", address)

test_external_mail_needs_communications if {
	samples.effect(base) == ["require_approval", 1, ["EXTERNAL"]]
	samples.roles(base) == ["communications"]
	samples.effect(to("ann@acme.example.org")) == ["require_approval", 1, ["EXTERNAL"]]
	samples.effect(to("ann@sub.acme.example")) == ["require_approval", 1, ["EXTERNAL"]]
	samples.effect(samples.posing(base, "service")) == samples.denied
}

test_mail_to_our_own_people_needs_nobody if {
	every address in ["ann@acme.example", "ann@eu.acme.example", "Ann@ACME.example"] {
		samples.effect(to(address)) == ["allow", 0, ["INTERNAL"]]
		samples.effect(samples.posing(to(address), "service")) == samples.denied
	}
}

test_mail_to_an_authority_needs_two if {
	every address in ["clerk@court.example", "desk@regulator.example"] {
		samples.effect(to(address)) == ["require_approval", 2, ["WEIGHTY"]]
		samples.roles(to(address)) == ["communications"]
		samples.effect(samples.posing(to(address), "service")) == samples.denied
	}
}

test_only_known_senders if {
	every sender in ["billing@acme.example", "support@acme.example"] {
		samples.effect(changed("/args/sender", sender)) == ["require_approval", 1, ["EXTERNAL"]]
	}
	samples.effect(changed("/args/sender", "ceo@acme.example")) == ["deny", 0, ["SENDER"]]
	samples.effect(samples.without(base, "/args/sender")) == ["deny", 0, ["SENDER"]]
}

test_one_plain_recipient if {
	every address in [
		"ann", "ann@customer", "@customer.example", "ann@customer.example,bob@x.example", "Ann <ann@acme.example>",
		"ann@acme.example@x.example", "ann@x.example\n", "ann@acmé.example", "", null, ["ann@acme.example"],
	] {
		samples.effect(to(address)) == ["deny", 0, ["RECIPIENT"]]
	}
}

test_secrets_are_not_mailed if {
	every text in [
		"-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----", "key AKIA0123456789ABCDEF.", "Password: hunter2",
		"the password = x",
	] {
		samples.effect(changed("/args/body", text)) == ["deny", 0, ["SECRET"]]
		samples.effect(changed("/args/subject", text)) == ["deny", 0, ["SECRET"]]
	}
	samples.effect(changed("/args/body", 7)) == ["require_approval", 1, ["EXTERNAL"]]
	samples.effect(changed("/args/body", "your password was changed")) == ["require_approval", 1, ["EXTERNAL"]]
}

test_the_recipient_may_be_written_to if samples.problems(base) == set()

test_a_snapshot_of_another_recipient if {
	samples.problems(changed("/snapshot/address", "bob@customer.example")) == {"OTHER_RECIPIENT"}
}

test_a_recipient_who_wants_no_mail if {
	samples.problems(changed("/snapshot/suppressed", true)) == {"SUPPRESSED"}
	samples.problems(samples.without(base, "/snapshot/suppressed")) == {"SUPPRESSED"}
}

test_an_external_recipient_must_have_agreed if {
	samples.problems(changed("/snapshot/consented", false)) == {"NO_CONSENT"}
	samples.problems(samples.without(base, "/snapshot/consented")) == {"NO_CONSENT"}
	samples.problems(samples.changed(to("ann@acme.example"), "/snapshot/consented", false)) == set()
}

test_three_messages_a_day if {
	samples.problems(changed("/snapshot/sent_today", 3)) == {"TOO_MANY"}
	samples.problems(changed("/snapshot/sent_today", null)) == {"TOO_MANY"}
	samples.problems(changed("/snapshot/sent_today", "0")) == {"TOO_MANY"}
	samples.problems(samples.without(base, "/snapshot/sent_today")) == {"TOO_MANY"}
}

read(messages) := changed("/read", {"messages": messages})

test_delivered_once if samples.verdict(base) == samples.expected

test_still_on_its_way if {
	samples.verdict(read([object.union(message, {"state": "deferred"})])) == samples.tolerated
	samples.verdict(read([object.union(message, {"state": "bounced"})])) == samples.unseen
	samples.verdict(read([])) == samples.unseen
	every value in [null, {}, [], {"messages": null}, {"messages": 1}] {
		samples.verdict(changed("/read", value)) == samples.unseen
	}
}

test_sent_twice if samples.verdict(read([message, message])) == ["prohibited", ["DUPLICATE"]]

test_another_message if {
	every key, value in {"to": "bob@customer.example", "subject": "Another"} {
		samples.verdict(read([object.union(message, {key: value})])) == ["prohibited", ["WRONG_MESSAGE"]]
	}
}

test_external_mail_is_not_repeated_by_itself if {
	samples.recovery(base) == ["manual", ["EXTERNAL"]]
	samples.recovery(to("ann@acme.example")) == samples.retry
}
