# METADATA
# title: Which file answers for which action
# description: |
#   One line for each action and question; the entry points ask here and nowhere else. An action that has no line here is
#   judged by the tables of decision.rego and by its contract alone. Paths are written out: the embedded engine evaluates
#   only the rule that is named, but the whole of a package that is imported, or of all when a part is a variable.
# authors:
# - kblockd
package kblock.actions

import rego.v1

# METADATA
# description: |
#   The actions that have lines below. One whose own rules give no decision is refused: a file that is missing, or an input
#   that its rules do not know, must not leave it to the tables.
owned contains "payment.refund.create"

owned contains "ticket.create"

owned contains "service.restart.execute"

owned contains "firewall.rule.change"

owned contains "email.send"

owned contains "record.delete"

owned contains "application.deploy"

# METADATA
# description: Stage 3, {refusals, tier}. A refusal outweighs everything; the tier says who must approve.
decision := data.kblock.actions.issue_refund.decision if input.action.type == "payment.refund.create"

decision := data.kblock.actions.create_ticket.decision if input.action.type == "ticket.create"

decision := data.kblock.actions.restart_service.decision if input.action.type == "service.restart.execute"

decision := data.kblock.actions.change_firewall_rule.decision if input.action.type == "firewall.rule.change"

decision := data.kblock.actions.send_email.decision if input.action.type == "email.send"

decision := data.kblock.actions.delete_record.decision if input.action.type == "record.delete"

decision := data.kblock.actions.deploy_application.decision if input.action.type == "application.deploy"

# METADATA
# description: Stage 8, the set of problems that the snapshot shows.
problems := data.kblock.actions.issue_refund.problems if input.action.type == "payment.refund.create"

problems := data.kblock.actions.create_ticket.problems if input.action.type == "ticket.create"

problems := data.kblock.actions.restart_service.problems if input.action.type == "service.restart.execute"

problems := data.kblock.actions.change_firewall_rule.problems if input.action.type == "firewall.rule.change"

problems := data.kblock.actions.send_email.problems if input.action.type == "email.send"

problems := data.kblock.actions.delete_record.problems if input.action.type == "record.delete"

problems := data.kblock.actions.deploy_application.problems if input.action.type == "application.deploy"

# METADATA
# description: Stage 14, {violations, shown}. A violation is prohibited; shown is expected, tolerated or "".
verification := data.kblock.actions.issue_refund.verification if input.action.type == "payment.refund.create"

verification := data.kblock.actions.create_ticket.verification if input.action.type == "ticket.create"

verification := data.kblock.actions.restart_service.verification if input.action.type == "service.restart.execute"

verification := data.kblock.actions.change_firewall_rule.verification if input.action.type == "firewall.rule.change"

verification := data.kblock.actions.send_email.verification if input.action.type == "email.send"

verification := data.kblock.actions.delete_record.verification if input.action.type == "record.delete"

verification := data.kblock.actions.deploy_application.verification if input.action.type == "application.deploy"

# METADATA
# description: Stage 15, the set of reasons why another attempt needs a person although nothing was done.
cautions := data.kblock.actions.issue_refund.cautions if input.action.type == "payment.refund.create"

cautions := data.kblock.actions.create_ticket.cautions if input.action.type == "ticket.create"

cautions := data.kblock.actions.restart_service.cautions if input.action.type == "service.restart.execute"

cautions := data.kblock.actions.change_firewall_rule.cautions if input.action.type == "firewall.rule.change"

cautions := data.kblock.actions.send_email.cautions if input.action.type == "email.send"

cautions := data.kblock.actions.delete_record.cautions if input.action.type == "record.delete"

cautions := data.kblock.actions.deploy_application.cautions if input.action.type == "application.deploy"
