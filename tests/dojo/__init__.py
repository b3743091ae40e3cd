"""AgentDojo, a published suite of tasks and injections, at our dispatch with a model that is always hijacked.

Its tools are tools of a plugin here. The scripted model makes the calls that solve the person's task, and then, when a
stranger's text told it to, those that the attacker wants. Nobody answers questions with yes.
"""
