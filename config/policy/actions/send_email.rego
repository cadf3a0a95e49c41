# METADATA
# title: Send an email (email.send)
# description: |
#   Arguments {sender, to, subject, body}, one recipient. Snapshot {address, suppressed, consented, sent_today} of the
#   recipient. Read {messages: [{to, subject, state}]}: those that carry the effect key.
# authors:
# - kblockd
package kblock.actions.send_email

import data.kblock.shared.tiers
import rego.v1

# METADATA
# description: Mail within these domains needs nobody's approval; every other domain is external.
own_domains := {"acme.example", "eu.acme.example"}

# METADATA
# description: What is said to them binds us, so two must read it.
weighty_domains := {"court.example", "regulator.example"}

senders := {"billing@acme.example", "support@acme.example"}

# METADATA
# description: A recipient gets at most so many messages a day from agents.
most_a_day := 3

approvers := ["communications"]

decision := {"refusals": refusals, "tier": tier}

refusals contains {"code": "SENDER", "message": "agents may not send as this address"} if not known_sender

refusals contains {"code": "RECIPIENT", "message": "the recipient is not one plain address"} if not domain

refusals contains {"code": "SECRET", "message": "the text looks as if it held a key or a password"} if {
	some text in [input.args.subject, input.args.body]
	is_string(text)
	regex.match(`(?i)-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b|\bpassword\s*[:=]`, text)
}

known_sender if input.args.sender in senders

domain := lower(split(input.args.to, "@")[1]) if {
	is_string(input.args.to)
	regex.match(`^[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`, input.args.to)
}

tier := tiers.allowed("INTERNAL", "mail to our own people may be sent") if {
	input.principal.kind == "agent"
	domain_is_ours
} else := tiers.approved_by(2, approvers, "WEIGHTY", "mail to an authority needs two approvers") if {
	input.principal.kind == "agent"
	domain in weighty_domains
} else := tiers.approved_by(1, approvers, "EXTERNAL", "external mail needs an approval by communications") if {
	input.principal.kind == "agent"
} else := tiers.denied

problems contains {"code": "OTHER_RECIPIENT", "message": "the snapshot is of another recipient"} if {
	not input.snapshot.address == input.args.to
}

problems contains {"code": "SUPPRESSED", "message": "the recipient wants no mail, or it is not known"} if {
	not input.snapshot.suppressed == false
}

problems contains {"code": "NO_CONSENT", "message": "an external recipient has not agreed to be written to"} if {
	not consented
}

problems contains {"code": "TOO_MANY", "message": "the recipient has had as many messages as a day may bring"} if {
	not few_enough
}

consented if domain_is_ours

consented if input.snapshot.consented == true

few_enough if {
	is_number(input.snapshot.sent_today)
	input.snapshot.sent_today < most_a_day
}

verification := {"violations": violations, "shown": shown}

messages := input.read.messages if is_array(input.read.messages)

violations contains {"code": "DUPLICATE", "message": "the message was sent more than once"} if count(messages) > 1

violations contains {"code": "WRONG_MESSAGE", "message": "a message went to another recipient or with another subject"} if {
	some message in messages
	not agreed(message)
}

agreed(message) if {
	message.to == input.args.to
	message.subject == input.args.subject
}

# METADATA
# description: Accepted by the recipient's server is what can be proved; until then it waits in our own queue.
shown := "expected" if {
	messages[0].state == "delivered"
} else := "tolerated" if {
	messages[0].state == "deferred"
} else := ""

cautions contains {"code": "EXTERNAL", "message": "external mail is not sent again without a person"} if not domain_is_ours

domain_is_ours if domain in own_domains
