"""Misspelt keys of a body are refused by name; keys that other servers know are accepted."""

from __future__ import annotations

import time

import pytest

from openconductor.serving.apis.chat import CHAT
from openconductor.serving.apis.messages import MESSAGES, count_tokens
from openconductor.serving.apis.responses import RESPONSES
from openconductor.serving.apis.wire import Api, Json, RequestFailed

TURNS = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, tuple[Api, Json]] = {
    "chat": (CHAT, {"model": "conductor", "messages": TURNS}),
    "responses": (RESPONSES, {"model": "conductor", "input": "Hi"}),
    "messages": (MESSAGES, {"model": "conductor", "messages": TURNS, "max_tokens": 9}),
}
PARAMETERS = {
    "vLLM": """
        add_generation_prompt add_special_tokens allowed_token_ids bad_words best_of
        cache_salt chat_template chat_template_kwargs continue_final_message documents echo
        guided_choice guided_decoding_backend guided_grammar guided_json guided_regex
        guided_whitespace_pattern ignore_eos include_reasoning include_stop_str_in_output
        kv_transfer_params length_penalty logits_processors logprob_token_ids
        media_io_kwargs min_p min_tokens mm_processor_kwargs priority prompt_embeds
        prompt_logprobs repetition_penalty request_id return_token_ids
        return_tokens_as_token_ids skip_special_tokens spaces_between_special_tokens
        stop_token_ids structural_tag structured_outputs thinking_token_budget top_k
        truncate_prompt_tokens use_beam_search vllm_xargs
    """,
    "SGLang": """
        bootstrap_host bootstrap_port bootstrap_room custom_logit_processor custom_params
        data_parallel_rank ebnf extra_key input_embeds input_ids json_schema
        logprob_start_len lora_path max_dynamic_patch max_new_tokens min_dynamic_patch
        min_new_tokens no_stop_trim regex return_cached_tokens_details return_hidden_states
        return_logprob return_routed_experts rid sampling_params sampling_seed
        separate_reasoning session_params stop_regex stream_reasoning top_logprobs_num
    """,
    "llama.cpp": """
        cache_prompt dry_allowed_length dry_base dry_multiplier dry_penalty_last_n
        dry_sequence_breakers dynatemp_exponent dynatemp_range grammar grammar_lazy
        grammar_triggers id_slot image_data lora min_keep mirostat mirostat_eta mirostat_tau
        n_cache_reuse n_indent n_keep n_predict n_probs parse_tool_calls penalize_nl
        penalty_prompt post_sampling_probs preserved_tokens prompt reasoning_budget
        reasoning_format repeat_last_n repeat_penalty response_fields return_progress
        return_tokens samplers t_max_predict_ms tfs_z thinking_forced_open timings_per_token
        top_n_sigma typical_p xtc_probability xtc_threshold
    """,
    "Ollama": """
        context f16_kv format images keep_alive low_vram main_gpu num_batch num_ctx num_gpu
        num_keep num_predict num_thread numa options raw suffix system template think
        use_mlock use_mmap vocab_only
    """,
    "TGI": """
        adapter_id decoder_input_details details do_sample guideline inputs parameters
        return_full_text tool_prompt top_n_tokens truncate watermark
    """,
    "LM Studio": """
        context_length draft_model integrations system_prompt ttl
    """,
    "OpenRouter": """
        cache_control debug image_config metadata modalities models plugins prediction
        preset provider reasoning route session_id top_a trace transforms usage user
        verbosity
    """,
    "LiteLLM": """
        additional_drop_params allowed_openai_params api_base api_key api_version
        assistant_continue_message base_url cache caching client content_policy_fallbacks
        context_window_fallback_dict custom_llm_provider deployment_id drop_params
        enable_json_schema_validation extra_body extra_headers extra_query fallbacks
        guardrails headers input_cost_per_token litellm_call_id litellm_params
        litellm_session_id litellm_trace_id max_retries merge_reasoning_content_in_choices
        mock_response mock_tool_calls model_info model_list no-log num_retries organization
        output_cost_per_token proxy_server_request router_settings stream_timeout tags
        text_completion thinking timeout user_api_key user_continue_message
    """,
    "Mistral": """
        prompt_mode random_seed safe_prompt
    """,
    "Groq": """
        citation_options compound_custom disable_tool_validation exclude_domains
        include_domains search_settings
    """,
    "Together": """
        compliance context_length_exceeded_behavior safety_model
    """,
    "Fireworks": """
        max_completion_tokens mirostat_lr mirostat_target perf_metrics_in_response
        prompt_cache_isolation_key prompt_cache_max_len prompt_truncate_len raw_output
        speculation
    """,
    "Qwen": """
        asr_options enable_code_interpreter enable_search enable_thinking incremental_output
        result_format search_options thinking_budget tool_stream translation_options
        vl_high_resolution_images
    """,
    "xAI": """
        deferred search_parameters
    """,
    "Perplexity": """
        disable_search enable_search_classifier language_preference
        last_updated_after_filter return_images return_related_questions
        search_after_date_filter search_before_date_filter search_domain_filter search_mode
        search_recency_filter stream_mode web_search_options
    """,
    "Cerebras": """
        clear_thinking disable_reasoning min_completion_tokens
    """,
    "Azure": """
        dataSources data_sources enhancements
    """,
    "text-generation-webui": """
        add_bos_token auto_max_new_tokens ban_eos_token bot_name character
        chat_instruct_command chat_template_str continue_ custom_token_bans
        dynamic_temperature dynatemp_high dynatemp_low early_stopping
        encoder_repetition_penalty epsilon_cutoff eta_cutoff grammar_string greeting
        guidance_scale instruction_template instruction_template_str max_tokens_second
        min_length mode negative_prompt no_repeat_ngram_size num_beams penalty_alpha
        prompt_lookup_num_tokens repetition_penalty_range sampler_priority smoothing_curve
        smoothing_factor stopping_strings temperature_last tfs top_n truncation_length
        typical user_bio user_name
    """,
    "OpenAI": """
        audio background client_metadata context_management conversation frequency_penalty
        function_call functions include input instructions logit_bias logprobs
        max_output_tokens max_tokens max_tool_calls messages moderation n
        parallel_tool_calls presence_penalty previous_response_id prompt_cache_key
        prompt_cache_options prompt_cache_retention reasoning_effort response_format
        safety_identifier seed service_tier stop store stream stream_options temperature
        text tool_choice tools top_logprobs top_p truncation
    """,
    "Anthropic": """
        anthropic_beta anthropic_version betas container inference_geo max_tokens_to_sample
        mcp_servers output_config output_format speed stop_sequences user_profile_id
    """,
    "Other": """
        chat_id conversation_id enable_cache input_type minP nvext output_type penalty
        seed_value session stream_tool_calls thread_id topK user_id
    """,
}
"""Parameters that servers, gateways and vendors document, and that their clients may send here."""
TYPOS = {
    "chat": """
        temprature:temperature temperatur:temperature tempature:temperature temp_erature:temperature
        max_token:max_tokens maxTokens:max_tokens max-tokens:max_tokens topP:top_p topp:top_p
        max_completions_tokens:max_completion_tokens frequency_penality:frequency_penalty
        presense_penalty:presence_penalty reasoning_efort:reasoning_effort stops:stop seeed:seed
        respose_format:response_format responseFormat:response_format tool_choise:tool_choice
        toolchoice:tool_choice tols:tools parallel_tools_calls:parallel_tool_calls straem:stream
        stream_option:stream_options logit_biases:logit_bias condutor:conductor stor:store
    """,
    "responses": """
        instruction:instructions max_output_token:max_output_tokens
        previous_respons_id:previous_response_id
        temprature:temperature reasonning:reasoning tool_choise:tool_choice steam:stream
        metdata:metadata truncations:truncation stored:store
    """,
    "messages": """
        sytem:system stop_sequence:stop_sequences temprature:temperature tool_choise:tool_choice
        output_fromat:output_format streem:stream
    """,
}


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("server", PARAMETERS)
def test_a_parameter_of_another_server_is_accepted(api: str, server: str) -> None:
    reader, body = BODIES[api]
    for name in PARAMETERS[server].split():
        reader.read({name: None, **body})


@pytest.mark.parametrize(
    ("api", "typo"), [(api, typo) for api in TYPOS for typo in TYPOS[api].split()]
)
def test_a_misspelt_key_is_refused_and_the_nearest_is_named(api: str, typo: str) -> None:
    reader, body = BODIES[api]
    wrong, _, right = typo.partition(":")
    with pytest.raises(RequestFailed) as caught:
        reader.read({**body, wrong: 0})
    assert (caught.value.status, caught.value.param) == (400, wrong)
    assert str(caught.value) == f"{wrong}: unknown key; the nearest known key is {right!r}"


def test_a_misspelt_key_that_must_be_there_is_named_instead_of_missing() -> None:
    with pytest.raises(RequestFailed, match="the nearest known key is 'messages'"):
        CHAT.read({"model": "conductor", "mesages": TURNS})
    with pytest.raises(RequestFailed, match="the nearest known key is 'messages'"):
        count_tokens({"model": "conductor", "mesages": TURNS})


def test_a_key_beside_the_one_that_it_looks_like_is_another_server_s() -> None:
    _, body = BODIES["chat"]
    CHAT.read({**body, "models": ["a", "b"], "max_tokens": 9, "max_tokens_": 9})


def test_a_body_of_many_keys_is_read_quickly() -> None:
    _, body = BODIES["chat"]
    start = time.process_time()
    CHAT.read({**body, **{f"key_{number}": 0 for number in range(50_000)}})
    assert time.process_time() - start < 1
