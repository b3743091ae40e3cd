"""Telling and asking at a terminal. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.prompts import print_error as print_error
from hermes_agent.compat.prompts import print_header as print_header
from hermes_agent.compat.prompts import print_info as print_info
from hermes_agent.compat.prompts import print_success as print_success
from hermes_agent.compat.prompts import print_warning as print_warning
from hermes_agent.compat.prompts import prompt as prompt
from hermes_agent.compat.prompts import prompt_yes_no as prompt_yes_no
