# METADATA
# title: Issue a refund (payment.refund.create)
# description: |
#   Arguments {order_id, amount, currency}. Snapshot {exists, version, status, amount, currency, refunded} of the order.
#   Read {refunds: [{amount, currency}]} of the order. Money is text with two decimals.
# authors:
# - kblockd
package kblock.actions.issue_refund

import data.kblock.shared.money
import data.kblock.shared.tiers
import rego.v1

# METADATA
# description: |
#   In minor units, by currency: up to `one` one approver is enough, up to `most` two are, and beyond it, or in another
#   currency, nothing is refunded.
limits := {
	"EUR": {"one": 50000, "most": 500000},
	"GBP": {"one": 40000, "most": 400000},
	"USD": {"one": 50000, "most": 500000},
}

approvers := ["finance"]

decision := {"refusals": refusals, "tier": tier}

refusals contains {"code": "CURRENCY", "message": "there is no refund limit for this currency"} if not limit

refusals contains {"code": "REFUND_LIMIT", "message": "the amount is beyond what may be refunded"} if asked > limit.most

refusals contains {"code": "NOT_MONEY", "message": "the amount is no sum of money with two decimals"} if not asked

limit := limits[input.args.currency]

asked := money.minor_units(input.args.amount)

tier := tiers.approved_by(1, approvers, "REFUND", "refunds need an approval by finance") if {
	input.principal.kind == "agent"
	asked <= limit.one
} else := tiers.approved_by(2, approvers, "LARGE_REFUND", "large refunds need two of finance") if {
	input.principal.kind == "agent"
} else := tiers.denied

problems contains {"code": "NOT_REFUNDABLE", "message": "the order does not exist or was not paid"} if not payable

problems contains {"code": "ALREADY_REFUNDED", "message": "the order has a refund already"} if {
	not input.snapshot.refunded == "0.00"
}

problems contains {"code": "AMOUNT", "message": "the amount or currency does not fit the order"} if not amount_fits

payable if {
	input.snapshot.exists == true
	input.snapshot.status == "paid"
}

amount_fits if {
	input.args.currency == input.snapshot.currency
	asked <= money.minor_units(input.snapshot.amount)
}

verification := {"violations": violations, "shown": shown}

violations contains {"code": "DUPLICATE", "message": "more refunds than were agreed"} if {
	readable
	count(input.read.refunds) > wanted
}

violations contains {"code": "WRONG_AMOUNT", "message": "a refund has another amount or currency than agreed"} if {
	readable
	some row in input.read.refunds
	not agreed(row)
}

default shown := ""

shown := "expected" if {
	readable
	count(input.read.refunds) == wanted
}

default wanted := 1

wanted := input.contract.verification.expected.refunds if is_number(input.contract.verification.expected.refunds)

readable if {
	is_array(input.read.refunds)
	every row in input.read.refunds {
		is_string(row.amount)
		is_string(row.currency)
	}
}

agreed(row) if {
	row.amount == input.args.amount
	row.currency == input.args.currency
}

cautions contains {"code": "LARGE_REFUND", "message": "a large refund is not repeated without a person"} if {
	asked > limit.one
}
